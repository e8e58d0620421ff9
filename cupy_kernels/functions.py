"""The functions of the CUDA sources, all of them, and which arguments a kernel made of one takes."""

from typing import Final

from normlab.cupy_kernels.norm_functions import NORM_FUNCTIONS
from normlab.cupy_kernels.signature import Function
from normlab.cupy_kernels.spec import KernelSpec, Parameter
from normlab.cupy_kernels.squash_functions import SQUASH_FUNCTIONS
from normlab.cupy_kernels.sum_functions import SUM_FUNCTIONS

FUNCTIONS: Final[dict[str, Function]] = {**NORM_FUNCTIONS, **SQUASH_FUNCTIONS, **SUM_FUNCTIONS}

#: Parameters that only some statistics have, and those that only a kernel that adds a residual has.
_ONLY_ADD = frozenset({"residual", "z", "residual_stride"})
_ONLY = {
    "shifts": {"layer"},
    "by_length": {"rms"},
    "bias_parts": {"layer", "tanh", "erf"},
    "shift": {"erf"},
    "shift_parts": {"erf"},
}


def parameters(spec: KernelSpec) -> tuple[Parameter, ...]:
    """Return the arguments of the kernel ``spec``, in order."""
    return tuple(each for each in FUNCTIONS[spec.function].parameters if _has(spec, each.name))


def _has(spec: KernelSpec, name: str) -> bool:
    return (spec.add or name not in _ONLY_ADD) and spec.statistic in _ONLY.get(name, {spec.statistic})
