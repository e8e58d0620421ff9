"""Forward of the norms: which mapping of rows to threads."""

from typing import Final

from normlab.cupy_kernels.plans import MOST_BLOCKS, Device, Launch, Plan, Request
from normlab.cupy_kernels.slices import PER, TEAM, cut, fill_better
from normlab.cupy_kernels.spec import KernelSpec

#: Row lengths in vectors that a team's registers hold: (threads that share a row, vectors a thread). Up to 32 threads
#: a row costs no barrier; 64 floats a thread is the most that leaves a block of 256 threads without spills.
WIDE: Final = ((8, 1), (16, 1), (32, 1), (32, 2), (32, 4), (32, 8), (128, 4), (256, 4), (256, 8))
#: Vectors narrower than 16 bytes are for odd widths and unaligned slices: fewer kernels to compile are enough.
NARROW: Final = ((32, 8), (256, 8))
#: Threads of the kernel that holds a row in shared memory.
LONG_TEAM: Final = 512


def plan_forward(request: Request, device: Device) -> Plan:
    """Rows in registers of a part of a warp, a warp or a block; in shared memory; or split."""
    if fill_better(request, device):
        return _split(request, device)
    held = _in_registers(request)
    if held is None and request.d * request.itemsize <= device.shared_bytes - 1024:
        held = request.kernel("norm_forward", per=0, team=LONG_TEAM, add=request.add)
    if held is None:
        return _split(request, device)
    grid = min(-(-request.rows // held.rows_per_block), MOST_BLOCKS)
    return Plan((Launch(held, grid, 0 if held.per else request.d * held.itemsize),))


def _in_registers(request: Request) -> KernelSpec | None:
    mappings = WIDE if request.full else NARROW
    specs = (request.kernel("norm_forward", per=per, team=team, add=request.add) for team, per in mappings)
    return next((spec for spec in specs if spec.columns >= request.d), None)


def _split(request: Request, device: Device) -> Plan:
    slices = cut(request, device)
    grid = request.rows * slices.count
    # norm_apply reads the sum that norm_moments stored, so it is the same kernel with and without a residual.
    stored = {"x_stride": request.d, "x_group": 0, "x_group_stride": 0} if request.add else {}
    moments = request.kernel("norm_moments", per=PER, team=TEAM, add=request.add, weightless=True)
    apply = request.kernel("norm_apply", per=1, team=TEAM)
    launches = (
        Launch(moments, grid, scalars=slices.scalars),
        Launch(apply, grid, scalars={**slices.scalars, **stored}, instead={"x": "z"} if request.add else {}),
    )
    return Plan(launches, scratch={"moments": grid * 2})
