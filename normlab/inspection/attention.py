"""Attention logits of any model, read where its softmax takes them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from normlab.recording.compiled import step_by_step

#: Softmax as the dispatcher names it.
_SOFTMAXES: Final = ("_softmax", "_safe_softmax")
#: A pair whose logit is below this in every head of a sequence is masked: masks add a large negative number.
_CLOSED: Final = -9000.0


class HeadLogits(NamedTuple):
    """What the logits of one head are over the pairs of a query and a key that are not masked.

    Attributes:
        pairs: number of pairs whose logit is finite.
        mean: their mean.
        mean_square: mean of their squares.
        max_abs: their largest absolute value.
        nonfinite: number of pairs whose logit is infinite or not a number. Where a mask is added to a logit that is
            not a number, such pairs are counted too.
    """

    pairs: int
    mean: float
    mean_square: float
    max_abs: float
    nonfinite: int = 0


class _Softmaxes(TorchDispatchMode):
    def __init__(self, see: Callable[[Tensor], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see = see

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in _SOFTMAXES:
            x, axis = args[:2]
            if x.dim() >= 3 and axis in (-1, x.dim() - 1):
                self._see(x)
        return func(*args, **(kwargs or {}))


@contextmanager
def softmaxes(see: Callable[[Tensor], None]) -> Iterator[None]:
    """Call ``see`` with what each softmax over the last axis of three or more takes; fused attention is taken apart."""
    with step_by_step(), sdpa_kernel(SDPBackend.MATH), _Softmaxes(see):
        yield


def head_logits(x: Float[Tensor, "*axes query key"], batch: int) -> list[HeadLogits]:
    """Return what the logits of each head are, in float64.

    Args:
        x: what a softmax takes: ``[batch, head, query, key]`` or ``[batch · head, query, key]``.
        batch: number of sequences.
    """
    logits = x.reshape(batch, -1, *x.shape[-2:]).double()
    masked = (logits <= _CLOSED).all(1, keepdim=True) | (logits == -torch.inf)
    return [_of_head(logits[:, head][~masked[:, head]]) for head in range(logits.shape[1])]


def _of_head(values: Tensor) -> HeadLogits:
    finite = values[values.isfinite()]
    broken = values.numel() - finite.numel()
    if not finite.numel():
        return HeadLogits(0, float("nan"), float("nan"), float("nan"), broken)
    square, largest = float(finite.square().mean()), float(finite.abs().max())
    return HeadLogits(finite.numel(), float(finite.mean()), square, largest, broken)


def fits(x: Tensor, batch: int, length: int) -> bool:
    """Whether a softmax's argument may be logits of every pair of tokens of each head of a batch."""
    if x.shape[-2] != length:
        return False
    return x.shape[0] == batch if x.dim() == 4 else x.dim() == 3 and x.shape[0] % batch == 0
