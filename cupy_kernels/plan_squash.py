"""DyT and Derf: tiles of columns that go down chunks of rows."""

from normlab.cupy_kernels.columns import COLUMN_TEAM, add_up, parts, tiles, totals
from normlab.cupy_kernels.plans import Device, Launch, Plan, Request


def plan_squash_forward(request: Request, device: Device) -> Plan:
    """One kernel."""
    return Plan((_tiled(request, device, "squash_forward")[0],))


def plan_squash_backward(request: Request, device: Device) -> Plan:
    """One kernel for dx and the partial sums, then the totals."""
    main, count = _tiled(request, device, "squash_backward")
    numbers = ("alpha", "shift") if request.statistic == "erf" else ("alpha",)
    last = [add_up(request.weight, f"{name}_parts", f"d{name}", main.grid, 1) for name in numbers]
    scratch = {f"{name}_parts": main.grid for name in numbers}
    return Plan((main, *last, *totals(request, count)), {**scratch, **parts(request, count)})


def _tiled(request: Request, device: Device, function: str) -> tuple[Launch, int]:
    across, chunk, count = tiles(request, device)
    kernel = request.kernel(function, per=1, team=COLUMN_TEAM)
    return Launch(kernel, across * count, scalars={"tiles": across, "chunk": chunk}), count
