"""What the operators of ``torch.ops.normlab`` are on a CPU, and what their second derivatives are taken of.

Forward is what the norms' modules compute in torch. Backward is the closed form: with n = (x − μ)·r and g = γ·dy,
dx = r·(g − mean(g) − n·mean(g·n)), mean(g) for LayerNorm alone; L2 has sums in place of means.
"""

import torch
from torch import Tensor
from torch.library import Library

from normlab.cupy_kernels.operations import gradient, statistics
from normlab.cupy_kernels.torch_ops import set_formula
from normlab.norms.affine import affine, wide
from normlab.norms.derf import derf
from normlab.norms.dyt import dyt
from normlab.norms.layernorm import layer_norm
from normlab.norms.rmsnorm import rms_norm
from normlab.norms.scalenorm import unit


def norm_formula(
    x: Tensor, gain: Tensor | None, bias: Tensor | None, statistic: str, eps: float, cast_first: bool
) -> Tensor:
    """Return the norm of ``x`` in torch."""
    cast = "before" if cast_first else "after"
    if statistic == "layer":
        return layer_norm(x, gain, bias, eps, cast)
    if statistic == "rms" and (gain is None or gain.dim()):
        return rms_norm(x, gain, eps, cast)
    return affine(unit(x, eps) if statistic == "l2" else rms_norm(wide(x), None, eps), gain, bias, like=x, cast=cast)


def squash_formula(
    x: Tensor, alpha: Tensor, shift: Tensor | None, gain: Tensor | None, bias: Tensor | None, function: str
) -> Tensor:
    """Return DyT or Derf of ``x`` in torch."""
    if function == "tanh":
        return dyt(x, alpha, gain, bias)
    return derf(x, alpha, alpha.new_zeros(()) if shift is None else shift, gain, bias)


def _norm(
    x: Tensor, gain: Tensor | None, bias: Tensor | None, statistic: str, eps: float, cast_first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    shifts, rstds = statistics(x, statistic)
    z = x if x.dtype == torch.float64 else x.float()
    if statistic == "layer":
        shifts.copy_((z - z[..., :1]).mean(-1))
        z = z - z.mean(-1, keepdim=True)
    squares = z.square().sum(-1)
    rstds.copy_(squares.clamp(min=eps).rsqrt() if statistic == "l2" else (squares / x.shape[-1] + eps).rsqrt())
    # An operator's result has the layout that it announces.
    return norm_formula(x, gain, bias, statistic, eps, cast_first).contiguous(), shifts, rstds


def _add_norm(
    x: Tensor, residual: Tensor, gain: Tensor | None, bias: Tensor | None, statistic: str, eps: float, cast_first: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    z = (x + residual).contiguous()
    y, shifts, rstds = _norm(z, gain, bias, statistic, eps, cast_first)
    return y, z, shifts, rstds


def _norm_backward(
    dy: Tensor,
    x: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    shifts: Tensor,
    rstds: Tensor,
    dz: Tensor | None,
    statistic: str,
    eps: float,
    cast_first: bool,
    gain_wanted: bool,
    bias_wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    z, up, scale = wide(x), wide(dy), rstds.unsqueeze(-1)
    centred = (z - z[..., :1]) - shifts.unsqueeze(-1) if statistic == "layer" else z
    normed = centred * scale
    g = up if gain is None else up * gain
    along = (g * normed).sum(-1, keepdim=True)
    along = along.where(scale < eps**-0.5, 0.0) if statistic == "l2" else along / x.shape[-1]
    level = g.mean(-1, keepdim=True) if statistic == "layer" else 0.0
    dx = scale * (g - level - normed * along)
    dx = dx if dz is None else dx + dz
    dgain, dbias = gradient(gain, x, wanted=gain_wanted), gradient(bias, x, wanted=bias_wanted)
    terms = up * (normed.to(x.dtype) if cast_first else normed)
    if dgain.numel():
        dgain.copy_(terms.sum() if dgain.dim() == 0 else terms.flatten(0, -2).sum(0))
    if dbias.numel():
        dbias.copy_(up.flatten(0, -2).sum(0))
    return dx.to(x.dtype).contiguous(), dgain, dbias


def _squash(
    x: Tensor, alpha: Tensor, shift: Tensor | None, gain: Tensor | None, bias: Tensor | None, function: str
) -> Tensor:
    return squash_formula(x, alpha, shift, gain, bias, function).contiguous()


def _squash_backward(
    dy: Tensor, x: Tensor, alpha: Tensor, shift: Tensor | None, gain: Tensor | None, bias: Tensor | None, function: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    z, up = wide(x), wide(dy)
    u = alpha * z if shift is None else alpha * z + shift
    value = torch.tanh(u) if function == "tanh" else torch.erf(u)
    slope = torch.cosh(u).square().reciprocal() if function == "tanh" else 2 / torch.pi**0.5 * torch.exp(-u * u)
    inner = up * slope if gain is None else up * gain * slope
    sums = {"alpha": inner * z, "shift": inner, "gain": up * value, "bias": up}
    weights = {"alpha": alpha, "shift": shift, "gain": gain, "bias": bias}
    found = {name: gradient(each, x, wanted=each is not None) for name, each in weights.items()}
    for name, each in found.items():
        if each.numel():
            each.copy_(sums[name].sum() if each.dim() == 0 else sums[name].flatten(0, -2).sum(0))
    return (inner * alpha).to(x.dtype).contiguous(), *found.values()  # type: ignore[return-value]


def _register() -> Library:
    library = Library("normlab", "IMPL", "CPU")
    for name, function in (
        ("norm", _norm),
        ("add_norm", _add_norm),
        ("norm_backward", _norm_backward),
        ("squash", _squash),
        ("squash_backward", _squash_backward),
    ):
        library.impl(name, function)
    set_formula("norm", norm_formula)
    set_formula("squash", squash_formula)
    return library


LIBRARY = _register()
