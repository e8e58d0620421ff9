"""Closed forms of norms over a batch: each feature of all tokens is a group, or an entry with running statistics."""

import torch
from torch import Tensor

from normlab.jacobian.closed_form import NormJacobian, closed_form
from normlab.jacobian.closed_pointwise import pointwise
from normlab.jacobian.closed_statistics import by_token, statistic
from normlab.jacobian.evaluating import JacobianError
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
    _refuse_padding(x, "batchnorm")
    return statistic(x, by_feature(x), centred=True, eps=norm.eps, gain=norm.gain)


@closed_form.register(PowerNorm)
def _powernorm(norm: PowerNorm, x: Tensor) -> NormJacobian:
    if not norm.training or int(norm.steps) + 1 > norm.warmup:
        slope = (norm.running_square.cpu().double() + norm.eps).rsqrt()
        if not norm.prescale:
            return pointwise(x, slope=slope, gain=norm.gain)
        gain = slope if norm.gain is None else slope * norm.gain.detach().cpu().double()
        return statistic(x, by_token(x), centred=False, eps=norm.eps, gain=gain)
    if norm.prescale:
        raise JacobianError(
            "powernorm with prescale norms tokens, then features of the batch: it has no closed form here; use dense"
        )
    _refuse_padding(x, "powernorm")
    return statistic(x, by_feature(x), centred=False, eps=norm.eps, gain=norm.gain)


def _refuse_padding(x: Tensor, name: str) -> None:
    if real_tokens(x, name).numel() != x.numel():
        raise JacobianError(
            f"{name} leaves padding out of its statistics: its closed form is for batches without padding"
        )
