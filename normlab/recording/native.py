"""Sums of tensors in host memory by the compiled ``native.cpp``: one pass a tensor, in float64.

Between the layers of a model every call finds cold caches, so that a handful of torch operations a tensor
costs several times what reading it does. The library is compiled where the package is built and a C++
compiler is there; without it, and for every tensor that it does not take, there is torch.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.recording.radii import KEPT, Radii
from normlab.recording.sums import Sums
from normlab.recording.tokens import Wanted

#: The numbers by which the library knows dtypes.
_DTYPES: Final = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_Pointer: Final = ctypes.c_void_p
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "normlab_activation": (ctypes.c_int, _Pointer, _Pointer, _Pointer, ctypes.c_bool, _Pointer, _Pointer),
    "normlab_gradient": (ctypes.c_int, _Pointer, _Pointer, _Pointer, _Pointer),
    "normlab_pair": (ctypes.c_int, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer),
    "normlab_squares": (ctypes.c_int64, _Pointer, _Pointer, _Pointer, _Pointer),
}


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library, or ``None`` where the package was built without it."""
    spec = find_spec("normlab.recording._native")
    if spec is None or spec.origin is None:
        return None
    try:
        loaded = ctypes.CDLL(spec.origin)
    except OSError:
        return None
    for name, arguments in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, ctypes.c_int64
    return loaded


def native_activation(
    x: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> Sums | None:
    """Return the sums of an activation, or ``None`` where it needs another way.

    Args:
        x: the tensor, of any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers are of use.
    """
    if not _taken(x):
        return None
    found, radii = np.empty(13), np.empty(x.shape[0] * x.shape[1], np.float32)
    vectors, kept = wanted.total or wanted.direction, None if keep is None else keep.contiguous()
    count = _call("normlab_activation", [x], kept, vectors, radii.ctypes.data, found[2:].ctypes.data)
    if count < 0:
        return None
    found[:2] = count, 0
    of_tokens = Radii(radii if count == radii.size else radii[:count].copy())
    return Sums("activation", found[:12], float(found[12]), of_tokens if count <= KEPT else of_tokens.binned())


def native_gradient(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None
) -> Sums | None:
    """Return the sums of a gradient, or ``None`` where it needs another way."""
    if not _taken(g):
        return None
    found, kept = np.empty(6), None if keep is None else keep.contiguous()
    count = _call("normlab_gradient", [g], kept, found[2:].ctypes.data)
    if count < 0:
        return None
    found[:2] = count, 0
    return Sums("gradient", found[:5], float(found[5]))


def native_pair(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
    keep: Bool[Tensor, "sequence token"] | None,
) -> Sums | None:
    """Return the sums of a residual sum, or ``None`` where it needs another way.

    Args:
        update: u, what is added.
        skip: s, what it is added to.
        total: the sum as it was stored, where there is one.
        keep: which tokens count; all unless given.
    """
    terms = (update, skip) if total is None else (update, skip, total)
    if not all(_taken(term) and term.dtype == update.dtype for term in terms):
        return None
    found, kept = np.empty(10), None if keep is None else keep.contiguous()
    count = _call("normlab_pair", [update, skip, total], kept, found[2:].ctypes.data)
    if count < 0:
        return None
    found[:2] = count, 0
    found[7:] = found[2], count, 0 if total is None else count
    return Sums("pair", found)


def native_squares(tensors: Sequence[Tensor]) -> np.ndarray:
    """Return the sum of squares of each tensor; NaN for one that is not finite or needs another way."""
    found = np.full(len(tensors), np.nan)
    which = [index for index, tensor in enumerate(tensors) if _ready(tensor) and tensor.is_contiguous()]
    if which:
        dtypes = np.array([_DTYPES[tensors[index].dtype] for index in which], np.intc)
        places = np.array([tensors[index].data_ptr() for index in which], np.uint64)
        counts = np.array([tensors[index].numel() for index in which], np.int64)
        sums = np.empty(len(which))
        loaded = library()
        assert loaded is not None
        loaded.normlab_squares(len(which), *(array.ctypes.data for array in (dtypes, places, counts, sums)))
        found[which] = np.where(sums < 0, np.nan, sums)
    return found


def _ready(x: Tensor) -> bool:
    """Say whether the library may read the memory of ``x``."""
    return (
        x.dtype in _DTYPES
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and type(x) in (Tensor, torch.nn.Parameter)
        and not x.is_neg()
        and library() is not None
        and x.numel() > 0
    )


def _taken(x: Tensor) -> bool:
    return _ready(x) and (x.stride(2) == 1 or x.shape[2] == 1)


def _call(name: str, tensors: Sequence[Tensor | None], keep: Tensor | None, *arguments: Any) -> int:
    """Call a function with the dtype, the tensors, their common shape and the strides of each, and the mask."""
    loaded, first = library(), tensors[0]
    assert loaded is not None and first is not None
    there = [tensor for tensor in tensors if tensor is not None]
    numbers = (*first.shape, *(step for tensor in there for step in tensor.stride()[:2]))
    return int(
        getattr(loaded, name)(
            _DTYPES[first.dtype],
            *(None if tensor is None else tensor.data_ptr() for tensor in tensors),
            (ctypes.c_int64 * len(numbers))(*numbers),
            None if keep is None else keep.data_ptr(),
            *arguments,
        )
    )
