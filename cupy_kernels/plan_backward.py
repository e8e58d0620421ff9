"""Backward of the norms: dx, and gradients of gain and bias in two stages."""

from typing import Final

from normlab.cupy_kernels.columns import COLUMN_TEAM, parts, tiles, totals
from normlab.cupy_kernels.plans import Device, Launch, Plan, Request
from normlab.cupy_kernels.slices import PER, TEAM, cut, fill_better
from normlab.cupy_kernels.spec import KernelSpec

#: As in forward, with half as much a thread: beside the row it holds dy and the sums over rows.
WIDE: Final = ((8, 1), (16, 1), (32, 1), (32, 2), (32, 4), (128, 2), (128, 4), (256, 4), (256, 8))
NARROW: Final = ((32, 4), (256, 4), (256, 8))
MOST_HELD: Final = 32
#: Blocks a multiprocessor that rows go round: as many as its registers hold at once.
RESIDENT: Final = {128: 4, 256: 2}


def plan_backward(request: Request, device: Device) -> Plan:
    """Rows in registers, round resident blocks; or three passes over split rows."""
    held = None if fill_better(request, device) else in_registers(request)
    launches, scratch, count = _split(request, device) if held is None else _resident(request, held, device)
    columns = {"gain_columns": request.d} if request.gain and request.one_gain else {}
    return Plan((*launches, *totals(request, count)), {**scratch, **parts(request, count), **columns})


def in_registers(request: Request) -> KernelSpec | None:
    """Return the kernel whose teams hold the row in registers, if one does."""
    mappings = WIDE if request.full else NARROW
    specs = (request.kernel("norm_backward", per=per, team=team) for team, per in mappings)
    return next((spec for spec in specs if spec.columns >= request.d and spec.vec * spec.per <= MOST_HELD), None)


def _resident(request: Request, held: KernelSpec, device: Device) -> tuple[tuple[Launch, ...], dict[str, int], int]:
    grid = min(-(-request.rows // held.rows_per_block), device.multiprocessors * RESIDENT[held.threads])
    return (Launch(held, grid),), {}, grid


def _split(request: Request, device: Device) -> tuple[tuple[Launch, ...], dict[str, int], int]:
    slices = cut(request, device)
    grid = request.rows * slices.count
    kernels = [request.kernel(f"norm_backward_{stage}", per=PER, team=TEAM) for stage in ("sums", "apply")]
    launches = tuple(Launch(kernel, grid, scalars=slices.scalars) for kernel in kernels)
    across, chunk, count = tiles(request, device)
    if request.gain or request.bias:
        columns = request.kernel("norm_backward_columns", per=1, team=COLUMN_TEAM, weightless=True)
        launches += (Launch(columns, across * count, scalars={"tiles": across, "chunk": chunk}),)
    return launches, {"sums": grid * 2}, count
