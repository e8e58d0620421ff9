"""Sums of tensors in host memory by the compiled ``native.cpp``: one pass a tensor, in float64.

Between the layers of a model every call finds cold caches, so that a handful of torch operations a tensor
costs several times what reading it does. The library is compiled where the package is built and a C++
compiler is there; without it, and for every tensor that it does not take, there is torch.
"""

import ctypes
import sys
import threading
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


class Memory:
    """Memory that the library writes numbers into, one tensor's after the other's.

    It is used again for the next step, so that a training loop finds it in the caches; what somebody still holds
    is not, since a backward pass in another thread may write while the next forward pass begins.
    """

    __slots__ = ("_blocks", "_block", "_address", "_number", "_used", "_lock")

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Let everything be written over that nobody holds any more."""
        with self._lock:
            self._number, self._used, self._address = -1, 0, 0
            self._block = np.empty(0)

    def take(self, length: int) -> tuple[int, np.ndarray]:
        """Return the address of ``length`` numbers that nobody else gets, and the numbers."""
        if length > _MANY:
            # These are read at once, and nobody keeps them.
            numbers = np.empty(length)
            return numbers.ctypes.data, numbers
        # While the library writes, other threads run: a backward pass may be one of them.
        with self._lock:
            if self._used + length > self._block.size:
                self._turn(length)
            start, self._used = self._used, self._used + length
            return self._address + 8 * start, self._block[start : self._used]

    def _turn(self, length: int) -> None:
        self._number += 1
        if self._number == len(self._blocks):
            self._blocks.append(np.empty(max(length, _BLOCK)))
        elif self._blocks[self._number].size < length or sys.getrefcount(self._blocks[self._number]) > _UNHELD:
            self._blocks[self._number] = np.empty(max(length, _BLOCK))
        self._block, self._used = self._blocks[self._number], 0
        self._address = self._block.ctypes.data


class Written:
    """What the library wrote about a tensor, before anybody looks at it.

    Numbers are taken out of the memory later, all at once: while a model runs this would cost as much as the sums.

    Attributes:
        moments: there are none.
    """

    __slots__ = ("_kind", "_numbers", "_tokens", "_sums")
    moments = None

    def __init__(self, kind: Kind, numbers: np.ndarray, tokens: int) -> None:
        self._kind, self._tokens = kind, tokens
        self._numbers: np.ndarray | None = numbers
        self._sums: Sums | None = None
        if tokens > KEPT and kind == "activation":
            # A histogram takes less memory.
            self.sums()

    def sums(self) -> Sums:
        """Return it as sums."""
        if self._sums is None:
            assert self._numbers is not None
            self._sums, self._numbers = _read(self._kind, self._numbers, self._tokens), None
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
    x: Float[Tensor, "sequence token feature"],
    keep: Bool[Tensor, "sequence token"] | None,
    wanted: Wanted,
    memory: Memory,
) -> Written | None:
    """Return the sums of an activation, or ``None`` where it needs another way.

    Args:
        x: the tensor, of any strides.
        keep: which tokens count; all unless given.
        wanted: which numbers are of use.
        memory: where they are written.
    """
    if not _taken(x, keep) or (compiled := library()) is None:
        return None
    shape = x.shape
    address, numbers = memory.take(_ACTIVATION + (shape[0] * shape[1] + 1) // 2)
    kept = None if keep is None else keep.contiguous()
    count = compiled.normlab_activation(
        _DTYPES[x.dtype],
        x.data_ptr(),
        _numbers(shape, x.stride()),
        None if kept is None else kept.data_ptr(),
        wanted.total or wanted.direction,
        address,
    )
    return Written("activation", numbers, count) if count >= 0 else None


def native_gradient(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, memory: Memory
) -> Written | None:
    """Return the sums of a gradient, or ``None`` where it needs another way."""
    if not _taken(g, keep) or (compiled := library()) is None:
        return None
    address, numbers = memory.take(_GRADIENT)
    kept = None if keep is None else keep.contiguous()
    count = compiled.normlab_gradient(
        _DTYPES[g.dtype],
        g.data_ptr(),
        _numbers(g.shape, g.stride()),
        None if kept is None else kept.data_ptr(),
        address,
    )
    return Written("gradient", numbers, count) if count >= 0 else None


def native_pair(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
    keep: Bool[Tensor, "sequence token"] | None,
    memory: Memory,
) -> Written | None:
    """Return the sums of a residual sum, or ``None`` where it needs another way.

    Args:
        update: u, what is added.
        skip: s, what it is added to.
        total: the sum as it was stored, where there is one.
        keep: which tokens count; all unless given.
        memory: where they are written.
    """
    terms = (update, skip) if total is None else (update, skip, total)
    if not all(_taken(term, keep) and term.dtype == update.dtype for term in terms) or (compiled := library()) is None:
        return None
    address, numbers = memory.take(_PAIR)
    kept = None if keep is None else keep.contiguous()
    count = compiled.normlab_pair(
        _DTYPES[update.dtype],
        update.data_ptr(),
        skip.data_ptr(),
        None if total is None else total.data_ptr(),
        _numbers(update.shape, *(term.stride() for term in terms)),
        None if kept is None else kept.data_ptr(),
        address,
    )
    return Written("pair", numbers, count) if count >= 0 else None


def native_squares(tensors: Sequence[Tensor]) -> np.ndarray:
    """Return the sum of squares of each tensor; NaN for one that is not finite or needs another way."""
    found = np.full(len(tensors), np.nan)
    which = [index for index, tensor in enumerate(tensors) if _ready(tensor) and tensor.is_contiguous()]
    compiled = library()
    if which and compiled is not None:
        ready = [tensors[index] for index in which]
        dtypes = np.array([_DTYPES[tensor.dtype] for tensor in ready], np.intc)
        places = np.array([tensor.data_ptr() for tensor in ready], np.uint64)
        counts = np.array([tensor.numel() for tensor in ready], np.int64)
        sums = np.empty(len(ready))
        compiled.normlab_squares(len(ready), *(array.ctypes.data for array in (dtypes, places, counts, sums)))
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


def _taken(x: Tensor, keep: Tensor | None) -> bool:
    return _ready(x) and (x.stride(2) == 1 or x.shape[2] == 1) and (keep is None or keep.is_cpu)


@lru_cache(maxsize=256)
def _numbers(shape: torch.Size, *strides: tuple[int, ...]) -> Any:
    """Return the numbers of sequences, tokens and features, and the steps between the first two of each tensor."""
    numbers = (*shape, *(step for stride in strides for step in stride[:2]))
    return (ctypes.c_int64 * len(numbers))(*numbers)


_PLAIN: Final = (Tensor, torch.nn.Parameter)
#: How many numbers the library writes of each kind; of an activation, without those of its tokens.
_ACTIVATION: Final = len(COLUMNS["activation"]) + 1
_GRADIENT: Final = len(COLUMNS["gradient"]) + 1
_PAIR: Final = len(COLUMNS["pair"])
#: Numbers of an activation of so many tokens that a histogram replaces them.
_MANY: Final = _ACTIVATION + KEPT // 2
#: Numbers in a block of memory.
_BLOCK: Final = 8192
#: References to a block that nobody holds: that of the list, and that of who counts.
_UNHELD: Final = 2
