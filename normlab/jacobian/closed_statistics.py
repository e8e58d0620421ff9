"""Closed forms of norms that divide by a statistic of a group: LayerNorm, RMSNorm, GroupNorm, ScaleNorm, L2 and kin.

With μ and v a group's mean and variance, or 0 and the mean square where nothing is centred,

    J = diag(γ) (v + ε)^(−1/2) (I − 1 1ᵀ/m − v/(v + ε) · x̂ x̂ᵀ),    x̂ = (x − μ)/‖x − μ‖,

without the term 1 1ᵀ/m where nothing is centred. Norms that bound ‖x‖ from below by √ε are I/√ε below it, and have no
ε above.
"""

import math

import torch
from torch import Tensor, nn

from normlab.jacobian.closed_form import NormJacobian, closed_form, grouped
from normlab.norms.groupnorm import GroupNorm
from normlab.norms.l2norm import L2Norm
from normlab.norms.layernorm import LayerNorm
from normlab.norms.rmsnorm import RMSNorm
from normlab.norms.scalenorm import ScaleNorm


def statistic(
    x: Tensor,
    groups: Tensor,
    *,
    centred: bool,
    eps: float,
    gain: Tensor | float | None = None,
    unbiased: bool = False,
    outside: bool = False,
    part: Tensor | None = None,
) -> NormJacobian:
    """Return the closed form of a norm that divides each group by √(v + ε).

    Args:
        x: the input.
        groups: flat indices of the entries of each group.
        centred: whether the group's mean is subtracted; otherwise v is the mean square.
        eps: ε.
        gain: γ.
        unbiased: whether v divides by one less than the number of entries.
        outside: whether the norm divides by √v + ε instead.
        part: 1 for entries that the statistics are of, and 0 for those that they act on alone; all unless given.
    """
    members = x.detach().cpu().double().flatten()[groups]
    taken = torch.ones_like(members) if part is None else part
    count = taken.sum(dim=1, keepdim=True)
    own = members - (members * taken).sum(dim=1, keepdim=True) / count if centred else members
    v = (own.square() * taken).sum(dim=1) / (count[:, 0] - int(unbiased))
    size = v.sqrt() if outside else v
    # A constant group has no direction of its own.
    share = torch.where(v > 0, size / (size + eps), 0.0)
    scale = 1 / (size + eps) if outside else (size + eps).rsqrt()
    columns, shares = [own], [share]
    if centred:
        columns, shares = [torch.ones_like(own), own], [torch.ones_like(share), share]
    directions, parts = torch.stack(columns, dim=2), torch.stack(shares, dim=1)
    return grouped(x, groups, gain=gain, scale=scale, directions=directions, shares=parts, part=part)


def length(x: Tensor, groups: Tensor, *, floor: float, gain: Tensor | float | None = None) -> NormJacobian:
    """Return the closed form of a norm that divides each group by max(‖x‖, floor)."""
    members = x.detach().cpu().double().flatten()[groups]
    size = torch.linalg.vector_norm(members, dim=1)
    share = (size > floor).double()[:, None]
    return grouped(x, groups, gain=gain, scale=1 / size.clamp(min=floor), directions=members[:, :, None], shares=share)


def by_token(x: Tensor, features: int | None = None) -> Tensor:
    """Return groups of consecutive features of a token: all of them, or ``features`` at a time."""
    return torch.arange(x.numel()).reshape(-1, features or x.shape[-1])


@closed_form.register(LayerNorm)
def _layernorm(norm: LayerNorm, x: Tensor) -> NormJacobian:
    return statistic(x, by_token(x), centred=True, eps=norm.eps, gain=norm.gain)


@closed_form.register(RMSNorm)
def _rmsnorm(norm: RMSNorm, x: Tensor) -> NormJacobian:
    return statistic(x, by_token(x), centred=False, eps=norm.eps, gain=norm.gain)


@closed_form.register(GroupNorm)
def _groupnorm(norm: GroupNorm, x: Tensor) -> NormJacobian:
    return statistic(x, by_token(x, norm.width // norm.groups), centred=True, eps=norm.eps, gain=norm.gain)


@closed_form.register(ScaleNorm)
def _scalenorm(norm: ScaleNorm, x: Tensor) -> NormJacobian:
    gain = math.sqrt(norm.width) if norm.gain is None else norm.gain
    return length(x, by_token(x), floor=math.sqrt(norm.eps), gain=gain)


@closed_form.register(L2Norm)
def _l2norm(norm: L2Norm, x: Tensor) -> NormJacobian:
    return length(x, by_token(x), floor=math.sqrt(norm.eps), gain=norm.gain)


@closed_form.register(nn.LayerNorm)
def _torch_layernorm(norm: nn.LayerNorm, x: Tensor) -> NormJacobian:
    return statistic(x, by_token(x, math.prod(norm.normalized_shape)), centred=True, eps=norm.eps, gain=norm.weight)


@closed_form.register(nn.RMSNorm)
def _torch_rmsnorm(norm: nn.RMSNorm, x: Tensor) -> NormJacobian:
    eps = float(torch.finfo(x.dtype).eps) if norm.eps is None else norm.eps
    return statistic(x, by_token(x, math.prod(norm.normalized_shape)), centred=False, eps=eps, gain=norm.weight)
