"""What only the entries of a tensor tell: whether attention is causal, and whether numbers count positions."""

from typing import Any

import torch
from torch import Tensor

#: Scores below this one, added to others, leave no weight.
_CLOSED = -1e4


def causal(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> bool | None:
    """Return whether an attention operation lets no position see a later one; ``None`` if it is none or unknown."""
    if op in ("_softmax", "_safe_softmax") and result.dim() >= 3 and args[1] in (-1, result.dim() - 1):
        return None if result.is_meta else _nothing_above(_without_sink(result) != 0)
    if "scaled_dot_product" not in op:
        return None
    if kwargs.get("is_causal") or any(one is True for one in args[3:]):
        return True
    mask = next((one for one in (*args[3:], *kwargs.values()) if isinstance(one, Tensor)), None)
    if mask is None:
        return False
    return None if mask.is_meta else _nothing_above(mask if mask.dtype == torch.bool else mask > _CLOSED)


def _without_sink(weights: Tensor) -> Tensor:
    """Leave out a last column that is no key: one that all positions see although the first sees no second key."""
    rows, columns = weights.shape[-2:]
    sink = columns == rows + 1 and rows > 1 and bool((weights[..., 0, -1] != 0).all())
    return weights[..., :-1] if sink and not bool((weights[..., 0, 1] != 0).any()) else weights


def counted(numbers: Tensor) -> bool:
    """Whether each of several numbers along the last axis is one more than the one before it."""
    if numbers.is_meta or not numbers.dim() or numbers.shape[-1] < 2:
        return False
    return bool((numbers.diff(dim=-1) == 1).all())


def _nothing_above(seen: Tensor) -> bool | None:
    """Return whether no entry above the diagonal is set; ``None`` where there is nothing to see above it."""
    if min(seen.shape[-2:]) < 2:
        return None
    return not bool(seen.triu(1 + seen.shape[-1] - seen.shape[-2]).any())
