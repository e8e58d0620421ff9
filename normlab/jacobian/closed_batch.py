"""Closed forms of norms over a batch: each feature of all tokens is a group, or an entry with running statistics."""

import torch
from torch import Tensor

from normlab.jacobian.closed_form import NormJacobian, closed_form
from normlab.jacobian.closed_pointwise import pointwise
from normlab.jacobian.closed_product import NormProduct
from normlab.jacobian.closed_statistics import by_token, statistic
from normlab.norms.batchnorm import BatchNorm
from normlab.norms.masking import real_tokens
from normlab.norms.powernorm import PowerNorm


def by_feature(x: Tensor) -> Tensor:
    """Return one group a feature, over all tokens."""
    return torch.arange(x.numel()).reshape(-1, x.shape[-1]).T


@closed_form.register(BatchNorm)
def _batchnorm(norm: BatchNorm, x: Tensor) -> NormJacobian:
    if not norm.training:
        return pointwise(x, slope=(norm.running_variance.cpu().double() + norm.eps).rsqrt(), gain=norm.gain)
    return statistic(x, by_feature(x), centred=True, eps=norm.eps, gain=norm.gain, part=_real(x, "batchnorm"))


@closed_form.register(PowerNorm)
def _powernorm(norm: PowerNorm, x: Tensor) -> NormJacobian | NormProduct:
    if norm.training and int(norm.steps) < norm.warmup:
        if not norm.prescale:
            return _warming_up(norm, x)
        own = x.detach().cpu().double()
        scaled = own * (own.square().mean(dim=-1, keepdim=True) + norm.eps).rsqrt()
        return NormProduct(_warming_up(norm, scaled), statistic(x, by_token(x), centred=False, eps=norm.eps))
    slope = (norm.running_square.cpu().double() + norm.eps).rsqrt()
    if not norm.prescale:
        return pointwise(x, slope=slope, gain=norm.gain)
    gain = slope if norm.gain is None else slope * norm.gain.detach().cpu().double()
    return statistic(x, by_token(x), centred=False, eps=norm.eps, gain=gain)


def _warming_up(norm: PowerNorm, x: Tensor) -> NormJacobian:
    return statistic(x, by_feature(x), centred=False, eps=norm.eps, gain=norm.gain, part=_real(x, "powernorm"))


def _real(x: Tensor, name: str) -> Tensor | None:
    """Return 1 for tokens that a batch's statistics are of and 0 for padding, by feature; nothing without padding."""
    numbers = torch.arange(x.numel(), dtype=torch.float64).reshape(x.shape)
    real = real_tokens(numbers, name)
    return None if real.numel() == x.numel() else torch.isin(by_feature(x), real).double()
