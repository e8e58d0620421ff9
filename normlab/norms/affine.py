"""The learnable gain and bias that follow most norms, and the precision in which all of it happens."""

from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor, nn

from normlab.errors import SpecError

#: When a result of half precision is rounded: before the gain multiplies it, or after.
Cast: TypeAlias = Literal["before", "after"]
CASTS: Final = ("before", "after")

HALF: Final = (torch.float16, torch.bfloat16)


def gain_parameter(width: int, initial: float, *, present: bool) -> nn.Parameter | None:
    """Return γ, one factor a feature, or ``None`` where the norm has none.

    Raises:
        SpecError: a value for a gain that is not there.
    """
    if not present and initial != 1:
        raise SpecError(
            f"initial_gain is {initial:g} and the norm has no gain: leave initial_gain out, or set gain=True"
        )
    return nn.Parameter(torch.full((width,), float(initial))) if present else None


def bias_parameter(width: int, *, present: bool) -> nn.Parameter | None:
    """Return β, one shift a feature, or ``None`` where the norm has none."""
    return nn.Parameter(torch.zeros(width)) if present else None


def check_cast(cast: str) -> str:
    """Return ``cast``.

    Raises:
        SpecError: it is neither ``before`` nor ``after``.
    """
    if cast not in CASTS:
        raise SpecError(f"cast is {cast!r}: choose 'before' or 'after' (the gain multiplies)")
    return cast


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in float32 where it is of half precision: statistics in half precision overflow at 256²."""
    return x.float() if x.dtype in HALF else x


def affine(normed: Tensor, gain: Tensor | None, bias: Tensor | None, *, like: Tensor, cast: str = "after") -> Tensor:
    """Return γ ⊙ normed + β in the dtype of ``like``, rounded before or after γ and β act."""
    y = normed.to(like.dtype) if cast == "before" else normed
    y = y if gain is None else y * gain
    y = y if bias is None else y + bias
    return y.to(like.dtype)
