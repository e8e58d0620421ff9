"""Sums of tensors in host memory by the compiled ``native.cpp``: one pass a tensor, in float64.

Between the layers of a model every call finds cold caches, so that a handful of torch operations a tensor
costs several times what reading it does. The library is compiled where the package is built and a C++
compiler is there; without it, and for every tensor that it does not take, there is torch.
"""

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.recording.radii import KEPT, Radii
from normlab.recording.sums import COLUMNS, Kind, Sums
from normlab.recording.tokens import Wanted

#: The numbers by which the library knows dtypes.
_DTYPES: Final = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_Pointer: Final = ctypes.c_void_p
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "normlab_activation": (ctypes.c_int, _Pointer, _Pointer, _Pointer, ctypes.c_bool, _Pointer),
    "normlab_gradient": (ctypes.c_int, _Pointer, _Pointer, _Pointer, _Pointer),
    "normlab_pair": (ctypes.c_int, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer, _Pointer),
    "normlab_squares": (ctypes.c_int64, _Pointer, _Pointer, _Pointer, _Pointer),
}


class Written:
    """What the library wrote about a tensor, before anybody looks at it.

    Numbers are taken out of the memory later, all at once: while a model runs this would cost as much as the sums.
    """

    __slots__ = ("_kind", "_memory", "_tokens", "_sums")

    def __init__(self, kind: Kind, memory: Any, tokens: int) -> None:
        self._kind, self._memory, self._tokens = kind, memory, tokens
        self._sums: Sums | None = None
        if tokens > KEPT and kind == "activation":
            # A histogram takes less memory.
            self.sums()

    def sums(self) -> Sums:
        """Return it as sums."""
        if self._sums is None:
            self._sums, self._memory = _read(self._kind, np.frombuffer(self._memory, np.float64), self._tokens), None
        return self._sums


def _read(kind: Kind, numbers: np.ndarray, tokens: int) -> Sums:
    columns = len(COLUMNS[kind])
    values = numbers[:columns].copy()
    if kind == "pair":
        return Sums(kind, values)
    if kind == "gradient":
        return Sums(kind, values, float(numbers[columns]))
    radii = Radii(numbers[columns + 1 :].view(np.float32)[:tokens].copy())
    return Sums(kind, values, float(numbers[columns]), radii if tokens <= KEPT else radii.binned())


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library, or ``None`` where the package was built without it."""
    spec = find_spec("normlab.recording._native")
    if spec is None or spec.origin is None:
        return None
    try:
        return loaded(spec.origin)
    except OSError:
        return None


def loaded(path: str) -> ctypes.CDLL:
    """Load a compiled ``native.cpp``.

    Raises:
        OSError: it cannot be loaded.
    """
    compiled = ctypes.CDLL(path)
    for name, arguments in _SIGNATURES.items():
        function = getattr(compiled, name)
        function.argtypes, function.restype = arguments, ctypes.c_int64
    return compiled


def native_activation(
    x: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> Written | None:
    """Return the sums of an activation, or ``None`` where it needs another way.

    Args:
        x: the tensor, of any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers are of use.
    """
    if not _taken(x) or (compiled := library()) is None:
        return None
    shape = x.shape
    memory = _activation_memory(shape[0] * shape[1])()
    kept = None if keep is None else keep.contiguous()
    count = compiled.normlab_activation(
        _DTYPES[x.dtype],
        x.data_ptr(),
        _numbers(shape, x.stride()),
        None if kept is None else kept.data_ptr(),
        wanted.total or wanted.direction,
        memory,
    )
    return Written("activation", memory, count) if count >= 0 else None


def native_gradient(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None
) -> Written | None:
    """Return the sums of a gradient, or ``None`` where it needs another way."""
    if not _taken(g) or (compiled := library()) is None:
        return None
    memory = _GRADIENT()
    kept = None if keep is None else keep.contiguous()
    count = compiled.normlab_gradient(
        _DTYPES[g.dtype],
        g.data_ptr(),
        _numbers(g.shape, g.stride()),
        None if kept is None else kept.data_ptr(),
        memory,
    )
    return Written("gradient", memory, count) if count >= 0 else None


def native_pair(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
    keep: Bool[Tensor, "sequence token"] | None,
) -> Written | None:
    """Return the sums of a residual sum, or ``None`` where it needs another way.

    Args:
        update: u, what is added.
        skip: s, what it is added to.
        total: the sum as it was stored, where there is one.
        keep: which tokens count; all unless given.
    """
    terms = (update, skip) if total is None else (update, skip, total)
    if not all(_taken(term) and term.dtype == update.dtype for term in terms) or (compiled := library()) is None:
        return None
    memory = _PAIR()
    kept = None if keep is None else keep.contiguous()
    count = compiled.normlab_pair(
        _DTYPES[update.dtype],
        update.data_ptr(),
        skip.data_ptr(),
        None if total is None else total.data_ptr(),
        _numbers(update.shape, *(term.stride() for term in terms)),
        None if kept is None else kept.data_ptr(),
        memory,
    )
    return Written("pair", memory, count) if count >= 0 else None


def native_squares(tensors: Sequence[Tensor]) -> np.ndarray:
    """Return the sum of squares of each tensor; NaN for one that is not finite or needs another way."""
    found = np.full(len(tensors), np.nan)
    which = [index for index, tensor in enumerate(tensors) if _ready(tensor) and tensor.is_contiguous()]
    compiled = library()
    if which and compiled is not None:
        dtypes = np.array([_DTYPES[tensors[index].dtype] for index in which], np.intc)
        places = np.array([tensors[index].data_ptr() for index in which], np.uint64)
        counts = np.array([tensors[index].numel() for index in which], np.int64)
        sums = np.empty(len(which))
        compiled.normlab_squares(len(which), *(array.ctypes.data for array in (dtypes, places, counts, sums)))
        found[which] = np.where(sums < 0, np.nan, sums)
    return found


def _ready(x: Tensor) -> bool:
    """Say whether the library can read the memory of ``x``."""
    return (
        x.is_cpu
        and x.dtype in _DTYPES
        and type(x) in _PLAIN
        and x.layout is torch.strided
        and not x.is_neg()
        and x.numel() > 0
    )


def _taken(x: Tensor) -> bool:
    return _ready(x) and (x.stride(2) == 1 or x.shape[2] == 1)


@lru_cache(maxsize=256)
def _numbers(shape: torch.Size, *strides: tuple[int, ...]) -> Any:
    """Return the numbers of sequences, tokens and features, and the steps between the first two of each tensor."""
    numbers = (*shape, *(step for stride in strides for step in stride[:2]))
    return (ctypes.c_int64 * len(numbers))(*numbers)


@lru_cache(maxsize=256)
def _activation_memory(tokens: int) -> Any:
    return ctypes.c_double * (len(COLUMNS["activation"]) + 1 + (tokens + 1) // 2)


_PLAIN: Final = (Tensor, torch.nn.Parameter)
_GRADIENT: Final = ctypes.c_double * (len(COLUMNS["gradient"]) + 1)
_PAIR: Final = ctypes.c_double * len(COLUMNS["pair"])
