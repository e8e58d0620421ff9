"""Every kernel that dispatch may choose, and the table by which it chooses."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from normlab.cupy_kernels import plan_backward, plan_forward
from normlab.cupy_kernels.columns import COLUMN_TEAM
from normlab.cupy_kernels.dispatch import plan
from normlab.cupy_kernels.plan_moments import LONG_TEAM, WARP_COLUMNS, total_moments
from normlab.cupy_kernels.plans import Device, Launch, Request
from normlab.cupy_kernels.slices import PER, TEAM
from normlab.cupy_kernels.spec import PAIRS, STORAGE, KernelSpec

STATISTICS: Final = ("rms", "layer")
SQUASHES: Final = ("tanh", "erf")


def every_kernel() -> tuple[KernelSpec, ...]:
    """Return all kernels that a plan may hold, each once, in a fixed order."""
    made = (*_forward(), *_backward(), *_squash(), *_moments(), *_sums())
    return tuple(dict.fromkeys(made))


def _requests(operation: str, statistics: tuple[str, ...]) -> Iterator[Request]:
    for dtype, weight in PAIRS:
        vec = 16 // STORAGE[dtype][1]
        while vec:
            for statistic in statistics:
                yield Request(operation, dtype, weight, rows=1, d=1, vec=vec, statistic=statistic)
            vec //= 2


def _forward() -> Iterator[KernelSpec]:
    for request in _requests("norm_forward", STATISTICS):
        for add in (False, True):
            mappings = plan_forward.WIDE if request.full else plan_forward.NARROW
            for team, per in (*mappings, (plan_forward.LONG_TEAM, 0)):
                yield request.kernel("norm_forward", per=per, team=team, add=add)
            yield request.kernel("norm_moments", per=PER, team=TEAM, add=add, weightless=True)
        yield request.kernel("norm_apply", per=1, team=TEAM)


def _backward() -> Iterator[KernelSpec]:
    for request in _requests("norm_backward", STATISTICS):
        for team, per in plan_backward.WIDE if request.full else plan_backward.NARROW:
            if request.vec * per <= plan_backward.MOST_HELD:
                yield request.kernel("norm_backward", per=per, team=team)
        yield request.kernel("norm_backward_sums", per=PER, team=TEAM)
        yield request.kernel("norm_backward_apply", per=PER, team=TEAM)
        yield request.kernel("norm_backward_columns", per=1, team=COLUMN_TEAM, weightless=True)


def _squash() -> Iterator[KernelSpec]:
    for function in ("squash_forward", "squash_backward"):
        for request in _requests(function, SQUASHES):
            yield request.kernel(function, per=1, team=COLUMN_TEAM)


def _moments() -> Iterator[KernelSpec]:
    for function in ("tensor_moments", "pair_moments"):
        for request in _requests(function, ("",)):
            for team in (32, LONG_TEAM):
                yield request.kernel(function, per=1, team=team, weightless=True)
    for request in _requests("sequence_sums", ("",)):
        yield request.kernel("sequence_sums", per=1, team=LONG_TEAM, weightless=True)
    yield total_moments().spec


def _sums() -> Iterator[KernelSpec]:
    for weight in STORAGE:
        yield KernelSpec("column_sum", "f32", weight, vec=1, per=1, team=COLUMN_TEAM)


def dispatch_table(device: Device, rows: int = 65536) -> tuple[dict[str, str | int], ...]:
    """Return which mapping serves which row lengths on ``device``, for many aligned rows.

    One entry a range: operation, bytes an element, least and greatest length in elements (greatest 0: no end), the
    first kernel's function, threads that share a row, rows a block, and where the row is held.
    """
    entries: list[dict[str, str | int]] = []
    for operation in ("norm_forward", "norm_backward", "squash_forward", "squash_backward", "tensor_moments"):
        for dtype in ("f32", "bf16"):
            entries += _ranges(_template(operation, dtype, rows), device)
    return tuple(entries)


def _template(operation: str, dtype: str, rows: int) -> Request:
    statistic = {"squash": "tanh", "tensor": ""}.get(operation.split("_")[0], "rms")
    return Request(operation, dtype, dtype, rows, d=1, vec=16 // STORAGE[dtype][1], statistic=statistic)


def _ranges(request: Request, device: Device) -> list[dict[str, str | int]]:
    limits = sorted({*_limits(request, device), 2**30})
    entries: list[dict[str, str | int]] = []
    least = 1
    for limit in limits:
        entry = _entry(request, plan(replace(request, d=limit), device).launches[0])
        if entries and all(entries[-1][key] == value for key, value in entry.items()):
            entries[-1]["to"] = limit
        else:
            entries.append(
                {"operation": request.operation, "bytes": request.itemsize, "from": least, "to": limit, **entry}
            )
        least = limit + 1
    entries[-1]["to"] = 0
    return entries


def _limits(request: Request, device: Device) -> Iterator[int]:
    """Row lengths at which the choice may change."""
    for team, per in (*plan_forward.WIDE, *plan_backward.WIDE):
        yield team * per * request.vec
    yield WARP_COLUMNS
    yield (device.shared_bytes - 1024) // request.itemsize // request.vec * request.vec


def _entry(request: Request, launch: Launch) -> dict[str, str | int]:
    spec = launch.spec
    held = "shared memory" if launch.shared_bytes else "registers" if spec.function == request.operation else "split"
    held = "nowhere" if request.operation.startswith(("squash", "tensor")) else held
    return {"function": spec.function, "threads": spec.team, "rows_a_block": spec.rows_per_block, "held_in": held}
