"""Closed forms of functions of each entry by itself: J = diag(γ φ′(x))."""

import math

import torch
from torch import Tensor, nn

from normlab.jacobian.closed_form import NormJacobian, closed_form, grouped
from normlab.norms.derf import Derf
from normlab.norms.dyt import DyT
from normlab.norms.identity import Identity


def pointwise(x: Tensor, *, slope: Tensor | float, gain: Tensor | float | None = None) -> NormJacobian:
    """Return the closed form of y = γ ⊙ φ(x).

    Args:
        x: the input.
        slope: φ′ of each entry, or one number.
        gain: γ.
    """
    slopes = torch.ones(x.shape, dtype=torch.float64) * torch.as_tensor(slope).detach().cpu().double()
    return grouped(x, torch.arange(x.numel())[:, None], gain=gain, scale=slopes.flatten())


@closed_form.register(DyT)
def _dyt(norm: DyT, x: Tensor) -> NormJacobian:
    alpha = norm.alpha.detach().cpu().double()
    return pointwise(x, slope=alpha / torch.cosh(alpha * x.detach().cpu().double()).square(), gain=norm.gain)


@closed_form.register(Derf)
def _derf(norm: Derf, x: Tensor) -> NormJacobian:
    alpha, shift = norm.alpha.detach().cpu().double(), norm.shift.detach().cpu().double()
    inside = alpha * x.detach().cpu().double() + shift
    return pointwise(x, slope=alpha * 2 / math.sqrt(math.pi) * torch.exp(-inside.square()), gain=norm.gain)


@closed_form.register(Identity)
@closed_form.register(nn.Identity)
def _identity(norm: nn.Module, x: Tensor) -> NormJacobian:
    return pointwise(x, slope=1.0)
