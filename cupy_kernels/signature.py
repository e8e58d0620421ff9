"""What a function of the CUDA sources is, and the arguments that several of them take."""

from dataclasses import dataclass

from normlab.cupy_kernels.spec import Parameter


@dataclass(frozen=True)
class Function:
    """A templated device function.

    Attributes:
        files: the ``.cuh`` files that it needs, in order.
        template: its template arguments, a format string of a spec's fields.
        parameters: what its wrapper takes, all of them; ``parameters`` leaves out what a variant has not.
        call: the arguments that the wrapper passes on, in CUDA C.
        grid: how many blocks, in words; a format string of ``rows_per_block`` and ``width``, elements of a tile,
            or ``tile``, elements of a tile of one warp's columns.
    """

    files: tuple[str, ...]
    template: str
    parameters: tuple[Parameter, ...]
    call: tuple[str, ...]
    grid: str


def pointer(
    name: str, meaning: str, *, type: str = "const T*", role: str = "input", optional: bool = False
) -> Parameter:
    """Return an array that a kernel takes by address."""
    return Parameter(name, type, role, meaning, optional)


def scalar(name: str, meaning: str, type: str = "long long") -> Parameter:
    """Return a number that a kernel takes."""
    return Parameter(name, type, "scalar", meaning)


def rows(of: str) -> tuple[Parameter, ...]:
    """Return the numbers that say where the rows of an array are."""
    return (
        scalar(f"{of}_stride", f"elements between rows of {of} (of one group)"),
        scalar(f"{of}_group", f"rows of {of} a group; 0: all rows are equally far apart"),
        scalar(f"{of}_group_stride", f"elements between groups of {of}"),
    )


def rows_value(of: str) -> str:
    """Return those numbers as what the sources take, in CUDA C."""
    return f"Rows{{{of}_stride, {of}_group, {of}_group_stride}}"


X = pointer("x", "[rows, d], rows as x_stride says")
GAIN = pointer("gain", "[d], or one number with one_gain", type="const W*", optional=True)
BIAS = pointer("bias", "[d]", type="const W*", optional=True)
Y = pointer("y", "[rows, d], rows as y_stride says", type="T*", role="output")
ROW_COUNT = scalar("rows", "number of rows")
D = scalar("d", "elements of a row", "int")
DY = pointer("dy", "[rows, d], rows as dy_stride says")
DX = pointer("dx", "[rows, d], rows as dx_stride says", type="T*", role="output")
GAIN_PARTS = pointer("gain_parts", "[parts, d]", type="float*", role="scratch", optional=True)
BIAS_PARTS = pointer("bias_parts", "[parts, d]", type="float*", role="scratch", optional=True)
TILES = (
    scalar("tiles", "blocks that share the columns of a row", "int"),
    scalar("chunk", "rows that a block adds up"),
)
ROUND = "ceil(rows / {rows_per_block}), or fewer: blocks go round the rows"
TILED = "tiles * ceil(rows / chunk), with tiles = ceil(d / {width})"
