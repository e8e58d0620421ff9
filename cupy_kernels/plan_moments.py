"""The recorder's statistics: one pass over a tensor, or over two at once, and sums over the tokens of sequences."""

from typing import Final

from normlab.cupy_kernels.plans import MOST_BLOCKS, Device, Launch, Plan, Request
from normlab.cupy_kernels.spec import KernelSpec

#: Elements up to which a row is a warp's, and the threads that share a longer one.
WARP_COLUMNS: Final = 4096
LONG_TEAM: Final = 256
#: Columns that a lane's warp takes at once, times the vector's elements, and the fewest tokens of a chunk.
WARP: Final = 32
LEAST_CHUNK: Final = 64


def plan_moments(request: Request, device: Device) -> Plan:
    """One kernel: a warp a row, or a block where rows are long. The rows' total is another one, for those who ask."""
    team = 32 if request.d <= WARP_COLUMNS else LONG_TEAM
    kernel = KernelSpec(request.operation, request.dtype, request.dtype, request.vec, per=1, team=team)
    return Plan((Launch(kernel, min(-(-request.rows // kernel.rows_per_block), MOST_BLOCKS)),))


def total_moments() -> Launch:
    """Return the kernel that merges the rows' moments into those of the whole tensor."""
    return Launch(KernelSpec("moments_total", "f32", "f32", vec=1, per=1, team=LONG_TEAM), grid=1)


def plan_sequence_sums(request: Request, device: Device) -> Plan:
    """One kernel: tiles of columns times chunks of tokens, about two blocks a multiprocessor.

    Each sequence has ``request.length`` of the rows, and chunks of its own.
    """
    length = request.length or request.rows
    across = -(-request.d // (request.vec * WARP))
    blocks = across * (request.rows // length)
    wanted = max(1, -(-2 * device.multiprocessors // blocks))
    chunk = max(LEAST_CHUNK, -(-length // wanted))
    chunks = -(-length // chunk)
    kernel = KernelSpec("sequence_sums", request.dtype, request.dtype, request.vec, per=1, team=LONG_TEAM)
    scalars = {"length": length, "tiles": across, "chunk": chunk, "chunks": chunks}
    return Plan((Launch(kernel, blocks * chunks, scalars=scalars),))
