"""Sums over rows in two stages: parts by whichever kernel reads the rows, then their total in one fixed order."""

from typing import Final

from normlab.cupy_kernels.plans import Device, Launch, Request
from normlab.cupy_kernels.spec import KernelSpec

#: Threads of the kernels that go down the rows of a tile of columns, and of the one that adds up the parts.
COLUMN_TEAM: Final = 256
#: Columns that a block of column_sum serves.
SUM_WIDTH: Final = 32


def parts(request: Request, count: int) -> dict[str, int]:
    """Return the scratch arrays for ``count`` rows of partial sums of each gradient that is wanted."""
    wanted = (("gain_parts", request.gain), ("bias_parts", request.bias))
    return {name: count * request.d for name, is_wanted in wanted if is_wanted}


def totals(request: Request, count: int) -> tuple[Launch, ...]:
    """Return the kernels that add ``count`` rows of parts of each gradient that is wanted."""
    bias = (add_up(request.weight, "bias_parts", "dbias", count, request.d),) if request.bias else ()
    if not request.gain:
        return bias
    if not request.one_gain:
        return (add_up(request.weight, "gain_parts", "dgain", count, request.d), *bias)
    # One gain for all columns: the columns' float32 sums are added once more, as parts of width one.
    columns = add_up("f32", "gain_parts", "gain_columns", count, request.d)
    return (columns, add_up(request.weight, "gain_columns", "dgain", request.d, 1), *bias)


def add_up(weight: str, summands: str, into: str, count: int, d: int) -> Launch:
    """Return the kernel that adds ``count`` rows of the float32 array ``summands`` into the array ``into``."""
    spec = KernelSpec("column_sum", "f32", weight, vec=1, per=1, team=COLUMN_TEAM)
    instead = {"parts": summands, "total": into}
    return Launch(spec, -(-d // SUM_WIDTH), scalars={"count": count, "d": d}, instead=instead)


def tiles(request: Request, device: Device) -> tuple[int, int, int]:
    """Return tiles of columns, rows a chunk and chunks, for about four blocks a multiprocessor."""
    across = -(-request.d // (request.vec * COLUMN_TEAM))
    chunk = -(-request.rows // min(request.rows, max(1, -(-4 * device.multiprocessors // across))))
    return across, chunk, -(-request.rows // chunk)
