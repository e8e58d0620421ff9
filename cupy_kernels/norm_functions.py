"""The functions of the norms: forward and backward, of rows held on the chip and of split ones."""

from typing import Final

from normlab.cupy_kernels.signature import (
    BIAS,
    BIAS_PARTS,
    DX,
    DY,
    GAIN,
    GAIN_PARTS,
    ROUND,
    ROW_COUNT,
    TILED,
    TILES,
    D,
    Function,
    X,
    Y,
    pointer,
    rows,
    rows_value,
    scalar,
)

_RESIDUAL = pointer("residual", "[rows, d], rows residual_stride apart; added to x")
_Z = pointer("z", "[rows, d], contiguous; x + residual", type="T*", role="output")
_SHIFTS = pointer("shifts", "[rows]; mean of a row less its first element", type="float*", role="output", optional=True)
_RSTDS = pointer("rstds", "[rows]; what the centred row is multiplied by", type="float*", role="output", optional=True)
_SCALE = (
    scalar("eps", "added to the mean square; by_length: least squared length; above 0", "float"),
    scalar("by_length", "1: rows are divided by their length in place of their root mean square", "int"),
)
_AFFINE = (
    scalar("one_gain", "1: gain is a single number", "int"),
    scalar("cast_first", "1: round to storage before gain multiplies", "int"),
)
_ADD_STRIDE = scalar("residual_stride", "elements between rows of residual")
_SLICES = (scalar("slices", "slices of a row", "int"), scalar("slice_width", "elements of a slice", "int"))
_AFFINE_VALUE = "Affine<{T}, {W}>{{gain, bias, one_gain, cast_first}}"
_FORWARD = ("storage.cuh", "team.cuh", "held.cuh", "norm_forward.cuh")
_DZ = pointer("dz", "[rows, d], rows dz_stride apart; gradient that reaches x past the norm", optional=True)
_SHIFTS_IN = pointer("shifts", "[rows], as forward left them", type="const float*")
_RSTDS_IN = pointer("rstds", "[rows], as forward left them", type="const float*")
_DZ_STRIDE = scalar("dz_stride", "elements between rows of dz")
# Backward has no bias to read: Affine's second pointer stays null.
_BACKWARD_AFFINE = "Affine<{T}, {W}>{{gain, nullptr, one_gain, cast_first}}"
_BACKWARD = (*_FORWARD, "columns.cuh", "norm_backward.cuh")
_BACKWARD_SPLIT = (*_BACKWARD, "norm_backward_split.cuh")
_RESIDENT = "as many as are resident; one row of gain_parts and bias_parts for each"
_SLICED = "rows * slices"

NORM_FUNCTIONS: Final[dict[str, Function]] = {
    "norm_forward": Function(
        grid=ROUND,
        files=_FORWARD,
        template="{STATISTIC}, {ADD}, {T}, {W}, {vec}, {per}, {team}",
        parameters=(
            *(X, _RESIDUAL, GAIN, BIAS, Y, _Z, _SHIFTS, _RSTDS, ROW_COUNT, D),
            *(*rows("x"), *rows("y"), _ADD_STRIDE, *_SCALE, *_AFFINE),
        ),
        call=(
            *("x", "residual", _AFFINE_VALUE, "y", "z", "shifts", "rstds", "rows", "d"),
            *(rows_value("x"), rows_value("y"), "residual_stride", "eps", "by_length", "dynamic_shared"),
        ),
    ),
    "norm_moments": Function(
        grid=_SLICED,
        files=(*_FORWARD, "norm_split.cuh"),
        template="{STATISTIC}, {ADD}, {T}, {vec}, {per}, {team}",
        parameters=(
            *(X, _RESIDUAL, _Z, pointer("moments", "[rows, slices, 2]", type="float*", role="scratch")),
            *(D, *_SLICES, *rows("x"), _ADD_STRIDE),
        ),
        call=(
            *("x", "residual", "z", "moments", "d", "slices", "slice_width"),
            *(rows_value("x"), "residual_stride"),
        ),
    ),
    "norm_apply": Function(
        grid=_SLICED,
        files=(*_FORWARD, "norm_split.cuh"),
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(X, pointer("moments", "[rows, slices, 2]", type="const float*"), GAIN, BIAS, Y, _SHIFTS, _RSTDS),
            *(D, *_SLICES, *rows("x"), *rows("y"), *_SCALE, *_AFFINE),
        ),
        call=(
            *("x", "moments", _AFFINE_VALUE, "y", "shifts", "rstds", "d", "slices", "slice_width"),
            *(rows_value("x"), rows_value("y"), "eps", "by_length"),
        ),
    ),
    "norm_backward": Function(
        grid=_RESIDENT,
        files=_BACKWARD,
        template="{STATISTIC}, {T}, {W}, {vec}, {per}, {team}",
        parameters=(
            *(DY, X, GAIN, _SHIFTS_IN, _RSTDS_IN, _DZ, DX, GAIN_PARTS, BIAS_PARTS, ROW_COUNT, D),
            *(*rows("dy"), *rows("x"), *rows("dx"), _DZ_STRIDE, *_SCALE, *_AFFINE),
        ),
        call=(
            *("dy", "x", _BACKWARD_AFFINE, "shifts", "rstds", "dz", "dx", "gain_parts", "bias_parts", "rows", "d"),
            *(rows_value("dy"), rows_value("x"), rows_value("dx"), "dz_stride", "eps", "by_length"),
        ),
    ),
    "norm_backward_sums": Function(
        grid=_SLICED,
        files=_BACKWARD_SPLIT,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(DY, X, GAIN, _SHIFTS_IN, _RSTDS_IN),
            pointer("sums", "[rows, slices, 2]", type="float*", role="scratch"),
            *(D, *_SLICES, *rows("dy"), *rows("x"), *_AFFINE),
        ),
        call=(
            *("dy", "x", _BACKWARD_AFFINE, "shifts", "rstds", "sums", "d", "slices", "slice_width"),
            *(rows_value("dy"), rows_value("x")),
        ),
    ),
    "norm_backward_apply": Function(
        grid=_SLICED,
        files=_BACKWARD_SPLIT,
        template="{STATISTIC}, {T}, {W}, {vec}, {team}",
        parameters=(
            *(DY, X, GAIN, _SHIFTS_IN, _RSTDS_IN),
            *(pointer("sums", "[rows, slices, 2]", type="const float*"), _DZ, DX, D, *_SLICES),
            *(*rows("dy"), *rows("x"), *rows("dx"), _DZ_STRIDE, *_SCALE, *_AFFINE),
        ),
        call=(
            *("dy", "x", _BACKWARD_AFFINE, "shifts", "rstds", "sums", "dz", "dx", "d", "slices", "slice_width"),
            *(rows_value("dy"), rows_value("x"), rows_value("dx"), "dz_stride", "eps", "by_length"),
        ),
    ),
    "norm_backward_columns": Function(
        grid=TILED,
        files=_BACKWARD_SPLIT,
        template="{STATISTIC}, {T}, {vec}, {team}",
        parameters=(
            *(DY, X, _SHIFTS_IN, _RSTDS_IN, GAIN_PARTS, BIAS_PARTS, ROW_COUNT, D, *TILES),
            *(*rows("dy"), *rows("x"), _AFFINE[1]),
        ),
        call=(
            *("dy", "x", "shifts", "rstds", "gain_parts", "bias_parts", "rows", "d", "tiles", "chunk"),
            *(rows_value("dy"), rows_value("x"), "cast_first"),
        ),
    ),
}
