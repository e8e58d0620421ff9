"""Kernel arguments as the exact C types that a launch passes."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from normlab.cupy_kernels.spec import Parameter
from normlab.errors import NormlabError

# A launch copies as many bytes as the given object has: a Python float would arrive as a double, an int as 8 bytes.
_TYPES: Final[dict[str, type[np.generic]]] = {"int": np.int32, "long long": np.int64, "float": np.float32}

#: A number, an address, or ``None`` for an optional array that is absent.
Value = int | float | None


def pack(parameters: tuple[Parameter, ...], values: Mapping[str, Value]) -> tuple[np.generic, ...]:
    """Return ``values`` in the order and the C types of ``parameters``; arrays are given by address.

    Raises:
        NormlabError: a value is missing, or one is given as ``None`` that is not optional.
    """
    return tuple(_packed(each, values) for each in parameters)


def _packed(parameter: Parameter, values: Mapping[str, Value]) -> np.generic:
    value = values.get(parameter.name)
    if value is None and not parameter.optional:
        raise NormlabError(f"the kernel's argument {parameter.name} is missing: give {parameter.meaning}")
    if "*" in parameter.type:
        return np.uint64(value or 0)
    packed: np.generic = _TYPES[parameter.type](value)
    return packed
