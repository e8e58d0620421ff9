"""Which kernels serve a call: a pure function of sizes, driven by tables."""

from collections.abc import Callable, Iterable
from typing import Final

from normlab.cupy_kernels.plan_backward import plan_backward
from normlab.cupy_kernels.plan_forward import plan_forward
from normlab.cupy_kernels.plan_moments import plan_moments, plan_sequence_sums
from normlab.cupy_kernels.plan_squash import plan_squash_backward, plan_squash_forward
from normlab.cupy_kernels.plans import Device, Plan, Request
from normlab.errors import NormlabError, unknown_name

MOST_COLUMNS: Final = 2**30

#: What chooses the kernels of each operation.
PLANNERS: Final[dict[str, Callable[[Request, Device], Plan]]] = {
    "norm_forward": plan_forward,
    "norm_backward": plan_backward,
    "squash_forward": plan_squash_forward,
    "squash_backward": plan_squash_backward,
    "tensor_moments": plan_moments,
    "pair_moments": plan_moments,
    "sequence_sums": plan_sequence_sums,
}


def plan(request: Request, device: Device) -> Plan:
    """Choose the kernels for ``request`` on ``device``. No rows need none.

    Raises:
        NormlabError: no kernel serves this row.
        UnknownNameError: there is no such operation.
    """
    if request.operation not in PLANNERS:
        raise unknown_name("operation", request.operation, PLANNERS)
    if not 1 <= request.d <= MOST_COLUMNS:
        raise NormlabError(f"a row of {request.d} elements: kernels take 1 to {MOST_COLUMNS}")
    return PLANNERS[request.operation](request, device) if request.rows else Plan(())


def widest_vector(d: int, arrays: Iterable[tuple[int, int, Iterable[int]]], itemsize: int) -> int:
    """Return how many elements may be moved at once.

    The largest power of two that divides ``d`` and every stride, fills no more than 16 bytes of the activations' type,
    and starts on a boundary that the widest access (16 bytes at most) of every array allows.

    Args:
        d: elements of a row.
        arrays: of every array its address, its bytes an element and its strides in elements.
        itemsize: bytes of an activation.
    """
    known = [(address, size, tuple(strides)) for address, size, strides in arrays]
    vec = 16 // itemsize
    while vec > 1 and not (d % vec == 0 and all(_fits(vec, *array) for array in known)):
        vec //= 2
    return vec


def _fits(vec: int, address: int, itemsize: int, strides: tuple[int, ...]) -> bool:
    boundary = min(16, vec * itemsize)
    return address % boundary == 0 and all(stride * itemsize % boundary == 0 for stride in strides)
