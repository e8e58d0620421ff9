"""Modules in place of a norm that squash each entry by itself: y = gain · s(α x + shift) + bias, s bounded."""

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

#: Where a float64 copy of a module is asked, around zero and far out.
_NEAR: Final = (-1.5, -0.7, -0.2, 0.3, 0.9, 1.6)
_FAR: Final = 1e4
_INVERSES: Final[dict[str, Callable[[Tensor], Tensor]]] = {"dyt": torch.atanh, "derf": torch.special.erfinv}


class Squash(NamedTuple):
    """What such a module computes.

    Attributes:
        name: ``dyt`` (s is tanh), ``derf`` (the error function), or ``squash`` for another bounded function.
        gain: of each feature.
        bias: of each feature.
    """

    name: str
    gain: Tensor
    bias: Tensor


def squashed(module: nn.Module, run: Callable[[Tensor], Tensor], features: int) -> Squash | None:
    """Return what a module computes if it squashes every entry by itself and has a gain for each feature.

    Without a gain it cannot be told from an activation.

    Args:
        module: a copy whose gains are positive.
        run: calls it with ``[number of tokens, features]``.
        features: the number of features.
    """
    if not any(parameter.numel() == features for parameter in module.parameters()):
        return None
    levels = torch.tensor((-2 * _FAR, -_FAR, *_NEAR, _FAR, 2 * _FAR), dtype=torch.float64)
    found = run(levels[:, None].expand(-1, features).contiguous())
    mixed = levels[torch.arange(features) % len(levels)].expand(2, -1).contiguous()
    by_itself = torch.equal(run(mixed)[0], found[torch.arange(features) % len(levels), torch.arange(features)])
    flat = _close(found[0], found[1]) and _close(found[-1], found[-2])
    rising = bool((found.diff(dim=0)[2:-2] > 0).all())
    if not (by_itself and flat and rising):
        return None
    gain, bias = (found[-1] - found[0]) / 2, (found[-1] + found[0]) / 2
    inside = (found[2:-2] - bias) / gain
    return Squash(next((name for name in _INVERSES if _straight(_INVERSES[name](inside))), "squash"), gain, bias)


def _straight(y: Tensor) -> bool:
    """Whether y is a straight line over the inner levels."""
    x = torch.tensor(_NEAR, dtype=torch.float64)
    slopes = y.diff(dim=0) / x.diff()[:, None]
    return bool(((slopes - slopes.mean()).abs() < 1e-3 * slopes.mean().abs()).all())


def _close(one: Tensor, two: Tensor) -> bool:
    return bool((one - two).abs().max() < 1e-3 * one.abs().max())
