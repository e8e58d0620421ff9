"""Device memory of the emulator: copies of tensors between canaries, at any alignment."""

import mmap

import torch
from torch import Tensor

CANARY = 0xA5
ZONE = 4096  # bytes before and after
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on


class Block:
    """A copy of a tensor, with its strides, in memory of its own.

    Args:
        name: the argument it is.
        original: the tensor.
        offset: elements by which the copy misses a 256-byte boundary.
        writable: whether the kernel may write to it.
    """

    def __init__(self, name: str, original: Tensor, offset: int, writable: bool) -> None:
        self.name, self.original, self.writable = name, original, writable
        lasts = ((size - 1) * stride for size, stride in zip(original.shape, original.stride(), strict=True))
        span = 1 + sum(lasts) if original.numel() else 0
        self._before = original.as_strided((span,), (1,)).clone()
        self.bytes = span * original.element_size()
        self._raw = torch.full((self.bytes + 2 * ZONE + 512,), CANARY, dtype=torch.uint8)
        self._start = ZONE + -(self._raw.data_ptr() + ZONE) % 256 + offset * original.element_size()
        self._flat().copy_(self._before)

    @property
    def address(self) -> int:
        """Where the copy starts."""
        return self._raw.data_ptr() + self._start

    def _flat(self) -> Tensor:
        return self._raw[self._start : self._start + self.bytes].view(self.original.dtype)

    def result(self) -> Tensor:
        """Return what the copy holds."""
        return self._strided(self._flat()).clone()

    def _strided(self, flat: Tensor) -> Tensor:
        return flat.as_strided(self.original.shape, self.original.stride()) if self.bytes else flat

    def damage(self) -> str:
        """Say what the kernel changed that it must not change; nothing if all is well."""
        before, after = self._raw[: self._start], self._raw[self._start + self.bytes :]
        if not (bool((before == CANARY).all()) and bool((after == CANARY).all())):
            return f"out-of-bounds write around {self.name}"
        kept = self._flat().clone()
        if self.writable:  # then only the gaps between its elements must be as they were
            self._strided(kept).copy_(self.original)
        unchanged = kept.view(torch.uint8).equal(self._before.view(torch.uint8))
        return "" if unchanged else f"{self.name} was written to where it must not be"


class Sparse:
    """Address space without memory behind it but where it is touched, for arrays beyond 2³¹ elements."""

    def __init__(self, elements: int, dtype: torch.dtype) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._map = mmap.mmap(-1, elements * dtype.itemsize, flags=flags)
        self.values = torch.frombuffer(self._map, dtype=dtype)

    @property
    def address(self) -> int:
        """Where it starts."""
        return self.values.data_ptr()
