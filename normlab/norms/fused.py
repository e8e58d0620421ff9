"""The residual sum and the norm that follows it, at once."""

from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms import backend
from normlab.norms.layernorm import LayerNorm
from normlab.norms.rmsnorm import RMSNorm


def add_norm(
    norm: nn.Module, x: Float[Tensor, "*batch width"], residual: Float[Tensor, "*batch width"]
) -> tuple[Float[Tensor, "*batch width"], Float[Tensor, "*batch width"]]:
    """Return ``norm(x + residual)`` and ``x + residual``: on a GPU by one kernel, with the same bits.

    The sum is rounded to storage before it is normed, so that the result is the norm of the sum that is returned.

    Args:
        norm: any norm; RMSNorm and LayerNorm are fused with the sum where their kernels serve it.
        x: what is added.
        residual: what it is added to.
    """
    if isinstance(norm, RMSNorm | LayerNorm) and x.dtype == residual.dtype and x.shape == residual.shape:
        bias = norm.bias if isinstance(norm, LayerNorm) else None
        if backend.uses_kernels(norm.backend, x, norm.gain, bias, eps=norm.eps):
            statistic = "layer" if isinstance(norm, LayerNorm) else "rms"
            first = norm.cast == "before"
            y, z, *_ = backend.OPERATORS.add_norm(x, residual, norm.gain, bias, statistic, norm.eps, first)
            return y, z
    z = x + residual
    return norm(z), z
