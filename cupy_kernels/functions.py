"""The functions of the CUDA sources: their arguments, how a wrapper calls them, and which files they need."""

from dataclasses import dataclass, replace
from typing import Final

from normlab.cupy_kernels.spec import KernelSpec, Parameter


@dataclass(frozen=True)
class Function:
    """A templated device function.

    Attributes:
        files: the ``.cuh`` files that it needs, in order.
        template: its template arguments, a format string of a spec's fields.
        parameters: what its wrapper takes, all of them; :func:`parameters` leaves out what a variant has not.
        call: the arguments that the wrapper passes on, in CUDA C.
        grid: how many blocks, in words; a format string of ``rows_per_block`` and ``width``, elements of a tile,
            or ``tile``, elements of a tile of one warp's columns.
    """

    files: tuple[str, ...]
    template: str
    parameters: tuple[Parameter, ...]
    call: tuple[str, ...]
    grid: str


def _pointer(
    name: str, meaning: str, *, type: str = "const T*", role: str = "input", optional: bool = False
) -> Parameter:
    return Parameter(name, type, role, meaning, optional)


def _scalar(name: str, meaning: str, type: str = "long long") -> Parameter:
    return Parameter(name, type, "scalar", meaning)


def _rows(of: str) -> tuple[Parameter, ...]:
    return (
        _scalar(f"{of}_stride", f"elements between rows of {of} (of one group)"),
        _scalar(f"{of}_group", f"rows of {of} a group; 0: all rows are equally far apart"),
        _scalar(f"{of}_group_stride", f"elements between groups of {of}"),
    )


def _rows_value(of: str) -> str:
    return f"Rows{{{of}_stride, {of}_group, {of}_group_stride}}"


_X = _pointer("x", "[rows, d], rows as x_stride says")
_RESIDUAL = _pointer("residual", "[rows, d], rows residual_stride apart; added to x")
_GAIN = _pointer("gain", "[d], or one number with one_gain", type="const W*", optional=True)
_BIAS = _pointer("bias", "[d]", type="const W*", optional=True)
_Y = _pointer("y", "[rows, d], rows as y_stride says", type="T*", role="output")
_Z = _pointer("z", "[rows, d], contiguous; x + residual", type="T*", role="output")
_SHIFTS = _pointer(
    "shifts", "[rows]; mean of a row less its first element", type="float*", role="output", optional=True
)
_RSTDS = _pointer("rstds", "[rows]; what the centred row is multiplied by", type="float*", role="output", optional=True)
_ROW_COUNT = _scalar("rows", "number of rows")
_D = _scalar("d", "elements of a row", "int")
_EPS = _scalar("eps", "added to the mean square; l2: least squared length; above 0", "float")
_AFFINE = (
    _scalar("one_gain", "1: gain is a single number", "int"),
    _scalar("cast_first", "1: round to storage before gain multiplies", "int"),
)
_ADD_STRIDE = _scalar("residual_stride", "elements between rows of residual")
_SLICES = (_scalar("slices", "slices of a row", "int"), _scalar("slice_width", "elements of a slice", "int"))
_AFFINE_VALUE = "Affine<{T}, {W}>{{gain, bias, one_gain, cast_first}}"
_FORWARD = ("storage.cuh", "team.cuh", "held.cuh", "norm_forward.cuh")

_DY = _pointer("dy", "[rows, d], rows as dy_stride says")
_DZ = _pointer("dz", "[rows, d], rows dz_stride apart; gradient that reaches x past the norm", optional=True)
_DX = _pointer("dx", "[rows, d], rows as dx_stride says", type="T*", role="output")
_SHIFTS_IN = _pointer("shifts", "[rows], as forward left them", type="const float*")
_RSTDS_IN = _pointer("rstds", "[rows], as forward left them", type="const float*")
_GAIN_PARTS = _pointer("gain_parts", "[parts, d]", type="float*", role="scratch", optional=True)
_BIAS_PARTS = _pointer("bias_parts", "[parts, d]", type="float*", role="scratch", optional=True)
_DZ_STRIDE = _scalar("dz_stride", "elements between rows of dz")
# Backward has no bias to read: Affine's second pointer stays null.
_BACKWARD_AFFINE = "Affine<{T}, {W}>{{gain, nullptr, one_gain, cast_first}}"
_BACKWARD = (*_FORWARD, "columns.cuh", "norm_backward.cuh")
_BACKWARD_SPLIT = (*_BACKWARD, "norm_backward_split.cuh")
_ALPHA = _pointer("alpha", "[1]", type="const W*")
_SHIFT = _pointer("shift", "[1]", type="const W*")
_SQUASH = ("storage.cuh", "team.cuh", "squash.cuh")
_MASK = _pointer("mask", "[rows]; 0: the row counts nowhere", type="const unsigned char*", optional=True)
_MOMENTS_OUT = _pointer("moments", "[rows, 8], as the kernel's file says", type="double*", role="output")
_TOKENS_OUT = _pointer("tokens", "[6, rows], as the kernel's file says", type="double*", role="output", optional=True)
_STORED = _pointer("stored", "[rows, d], rows as stored_stride says; the sum of both as it was rounded", optional=True)
_LOST = _pointer("lost", "[rows]; written where stored is given", type="double*", role="output", optional=True)
_COLUMNS = _scalar("columns", "elements of a row")
_COLUMN_STRIDE = _scalar("column_stride", "elements between neighbours of a row; 1 where vectors are wider than one")
_MOMENTS = ("storage.cuh", "team.cuh", "moments.cuh")
_TILES = (
    _scalar("tiles", "blocks that share the columns of a row", "int"),
    _scalar("chunk", "rows that a block adds up"),
)

_ROUND = "ceil(rows / {rows_per_block}), or fewer: blocks go round the rows"
_RESIDENT = "as many as are resident; one row of gain_parts and bias_parts for each"
_SLICED = "rows * slices"
_TILED = "tiles * ceil(rows / chunk), with tiles = ceil(d / {width})"

FUNCTIONS: Final[dict[str, Function]] = {
    "norm_forward": Function(
        grid=_ROUND,
        files=_FORWARD,
        template="{STATISTIC}, {ADD}, {T}, {W}, {vec}, {per}, {team}",
        parameters=(
            *(_X, _RESIDUAL, _GAIN, _BIAS, _Y, _Z, _SHIFTS, _RSTDS, _ROW_COUNT, _D),
            *(*_rows("x"), *_rows("y"), _ADD_STRIDE, _EPS, *_AFFINE),
        ),
        call=(
            *("x", "residual", _AFFINE_VALUE, "y", "z", "shifts", "rstds", "rows", "d"),
            *(_rows_value("x"), _rows_value("y"), "residual_stride", "eps", "dynamic_shared"),
        ),
    ),
    "norm_moments": Function(
        grid=_SLICED,
        files=(*_FORWARD, "norm_split.cuh"),
        template="{STATISTIC}, {ADD}, {T}, {vec}, {per}, {team}",
        parameters=(
            *(_X, _RESIDUAL, _Z, _pointer("moments", "[rows, slices, 2]", type="float*", role="scratch")),
            *(_D, *_SLICES, *_rows("x"), _ADD_STRIDE),
        ),
        call=(
            *("x", "residual", "z", "moments", "d", "slices", "slice_width"),
            *(_rows_value("x"), "residual_stride"),
        ),
    ),
    "norm_apply": Function(
        grid=_SLICED,
        files=(*_FORWARD, "norm_split.cuh"),
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(_X, _pointer("moments", "[rows, slices, 2]", type="const float*"), _GAIN, _BIAS, _Y, _SHIFTS, _RSTDS),
            *(_D, *_SLICES, *_rows("x"), *_rows("y"), _EPS, *_AFFINE),
        ),
        call=(
            *("x", "moments", _AFFINE_VALUE, "y", "shifts", "rstds", "d", "slices", "slice_width"),
            *(_rows_value("x"), _rows_value("y"), "eps"),
        ),
    ),
    "norm_backward": Function(
        grid=_RESIDENT,
        files=_BACKWARD,
        template="{STATISTIC}, {T}, {W}, {vec}, {per}, {team}",
        parameters=(
            *(_DY, _X, _GAIN, _SHIFTS_IN, _RSTDS_IN, _DZ, _DX, _GAIN_PARTS, _BIAS_PARTS, _ROW_COUNT, _D),
            *(*_rows("dy"), *_rows("x"), *_rows("dx"), _DZ_STRIDE, _EPS, *_AFFINE),
        ),
        call=(
            *("dy", "x", _BACKWARD_AFFINE, "shifts", "rstds", "dz", "dx", "gain_parts", "bias_parts", "rows", "d"),
            *(_rows_value("dy"), _rows_value("x"), _rows_value("dx"), "dz_stride", "eps"),
        ),
    ),
    "norm_backward_sums": Function(
        grid=_SLICED,
        files=_BACKWARD_SPLIT,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(_DY, _X, _GAIN, _SHIFTS_IN, _RSTDS_IN),
            _pointer("sums", "[rows, slices, 2]", type="float*", role="scratch"),
            *(_D, *_SLICES, *_rows("dy"), *_rows("x"), *_AFFINE),
        ),
        call=(
            *("dy", "x", _BACKWARD_AFFINE, "shifts", "rstds", "sums", "d", "slices", "slice_width"),
            *(_rows_value("dy"), _rows_value("x")),
        ),
    ),
    "norm_backward_apply": Function(
        grid=_SLICED,
        files=_BACKWARD_SPLIT,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(_DY, _X, _GAIN, _SHIFTS_IN, _RSTDS_IN),
            *(_pointer("sums", "[rows, slices, 2]", type="const float*"), _DZ, _DX, _D, *_SLICES),
            *(*_rows("dy"), *_rows("x"), *_rows("dx"), _DZ_STRIDE, _EPS, *_AFFINE),
        ),
        call=(
            *("dy", "x", _BACKWARD_AFFINE, "shifts", "rstds", "sums", "dz", "dx", "d", "slices", "slice_width"),
            *(_rows_value("dy"), _rows_value("x"), _rows_value("dx"), "dz_stride", "eps"),
        ),
    ),
    "norm_backward_columns": Function(
        grid=_TILED,
        files=_BACKWARD_SPLIT,
        template="{STATISTIC}, {T}, {vec}, {team}",
        parameters=(
            *(_DY, _X, _SHIFTS_IN, _RSTDS_IN, _GAIN_PARTS, _BIAS_PARTS, _ROW_COUNT, _D, *_TILES),
            *(*_rows("dy"), *_rows("x"), _AFFINE[1]),
        ),
        call=(
            *("dy", "x", "shifts", "rstds", "gain_parts", "bias_parts", "rows", "d", "tiles", "chunk"),
            *(_rows_value("dy"), _rows_value("x"), "cast_first"),
        ),
    ),
    "squash_forward": Function(
        grid=_TILED,
        files=_SQUASH,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(_X, _ALPHA, _SHIFT, _GAIN, _BIAS, _Y, _ROW_COUNT, _D, *_TILES),
            *(*_rows("x"), *_rows("y")),
        ),
        call=(
            *("x", "alpha", "shift", "gain", "bias", "y", "rows", "d", "tiles", "chunk"),
            *(_rows_value("x"), _rows_value("y")),
        ),
    ),
    "squash_backward": Function(
        grid=_TILED,
        files=_SQUASH,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(_DY, _X, _ALPHA, _SHIFT, _GAIN, _DX),
            _pointer("alpha_parts", "[blocks]", type="float*", role="scratch"),
            _pointer("shift_parts", "[blocks]", type="float*", role="scratch"),
            *(_GAIN_PARTS, _BIAS_PARTS, _ROW_COUNT, _D, *_TILES, *_rows("dy"), *_rows("x"), *_rows("dx")),
        ),
        call=(
            *("dy", "x", "alpha", "shift", "gain", "dx", "alpha_parts", "shift_parts", "gain_parts", "bias_parts"),
            *("rows", "d", "tiles", "chunk", _rows_value("dy"), _rows_value("x"), _rows_value("dx")),
        ),
    ),
    "tensor_moments": Function(
        grid=_ROUND,
        files=_MOMENTS,
        template="{T}, {vec}, {team}",
        parameters=(
            *(_X, _MASK, replace(_MOMENTS_OUT, optional=True), _TOKENS_OUT, _ROW_COUNT, _COLUMNS),
            *(*_rows("x"), _COLUMN_STRIDE),
        ),
        call=("x", "mask", "moments", "tokens", "rows", "columns", _rows_value("x"), "column_stride"),
    ),
    "pair_moments": Function(
        grid=_ROUND,
        files=(*_MOMENTS, "pair_moments.cuh"),
        template="{T}, {vec}, {team}",
        parameters=(
            *(_X, _pointer("other", "[rows, d], rows as other_stride says"), _STORED, _MASK, _MOMENTS_OUT, _LOST),
            *(_ROW_COUNT, _COLUMNS, *_rows("x"), *_rows("other"), *_rows("stored"), _COLUMN_STRIDE),
        ),
        call=(
            *("x", "other", "stored", "mask", "moments", "lost", "rows", "columns"),
            *(_rows_value("x"), _rows_value("other"), _rows_value("stored"), "column_stride"),
        ),
    ),
    "sequence_sums": Function(
        grid="tiles * chunks * sequences, with tiles = ceil(d / {tile}) and chunks = ceil(length / chunk)",
        files=("storage.cuh", "team.cuh", "sequence_sums.cuh"),
        template="{T}, {vec}, {team}",
        parameters=(
            _X,
            _pointer("norms", "[sequences * length]; NaN: the token counts nowhere", type="const double*"),
            _pointer("parts", "[sequences, chunks, 2, d]", type="double*", role="output"),
            *(_scalar("length", "tokens of a sequence"), _D, *_TILES, _scalar("chunks", "chunks of a sequence")),
            *_rows("x"),
        ),
        call=("x", "norms", "parts", "length", "d", "tiles", "chunk", "chunks", _rows_value("x")),
    ),
    "moments_total": Function(
        grid="1",
        files=_MOMENTS,
        template="{team}",
        parameters=(
            _pointer("moments", "[rows, 8]", type="const double*"),
            *(_pointer("total", "[8]", type="double*", role="output"), _ROW_COUNT),
        ),
        call=("moments", "total", "rows"),
    ),
    "column_sum": Function(
        grid="ceil(d / 32)",
        files=("storage.cuh", "team.cuh", "columns.cuh"),
        template="{W}",
        parameters=(
            _pointer("parts", "[count, d]", type="const float*"),
            _pointer("total", "[d]", type="W*", role="output"),
            *(_scalar("count", "rows of parts"), _D),
        ),
        call=("parts", "total", "count", "d"),
    ),
}

#: Parameters that only some statistics have, and those that only a kernel that adds a residual has.
_ONLY_ADD = frozenset({"residual", "z", "residual_stride"})
_ONLY = {
    "shifts": {"layer"},
    "bias_parts": {"layer", "tanh", "erf"},
    "shift": {"erf"},
    "shift_parts": {"erf"},
}


def parameters(spec: KernelSpec) -> tuple[Parameter, ...]:
    """Return the arguments of the kernel ``spec``, in order."""
    return tuple(each for each in FUNCTIONS[spec.function].parameters if _has(spec, each.name))


def _has(spec: KernelSpec, name: str) -> bool:
    return (spec.add or name not in _ONLY_ADD) and spec.statistic in _ONLY.get(name, {spec.statistic})
