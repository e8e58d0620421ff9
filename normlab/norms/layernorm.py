"""LayerNorm."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.norms import backend
from normlab.norms.affine import affine, bias_parameter, check_cast, gain_parameter
from normlab.norms.backend import check_backend
from normlab.norms.norm import Norm, register_norm


class LayerNorm(nn.Module):
    """y = γ ⊙ (x − μ)/√(v + ε) + β, with mean μ and population variance v over a token's features.

    Source: Ba, Kiros and Hinton 2016, arXiv 1607.06450.

    Args:
        width: d, the number of features.
        eps: ε, in squared units of x.
        gain: whether there is a learnable γ.
        bias: whether there is a learnable β.
        initial_gain: the value of γ at initialisation.
        cast: whether half precision is rounded to ``before`` or ``after`` γ and β act.
        backend: ``auto``, ``torch`` or ``cupy`` (:mod:`normlab.norms.backend`).

    Raises:
        SpecError: an initial gain without a gain, or another ``cast``.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: float = 1e-5,
        gain: bool = True,
        bias: bool = True,
        initial_gain: float = 1.0,
        cast: str = "after",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.width, self.eps, self.cast, self.backend = width, eps, check_cast(cast), check_backend(backend)
        self.gain = gain_parameter(width, initial_gain, present=gain)
        self.bias = bias_parameter(width, present=bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each token on its own."""
        if backend.uses_kernels(self.backend, x, self.gain, self.bias, eps=self.eps):
            first = self.cast == "before"
            y: Tensor = backend.OPERATORS.norm(x, self.gain, self.bias, "layer", self.eps, first)[0]
            return y
        return layer_norm(x, self.gain, self.bias, self.eps, self.cast)


def layer_norm(
    x: Float[Tensor, "*batch width"], gain: Tensor | None, bias: Tensor | None, eps: float, cast: str = "after"
) -> Float[Tensor, "*batch width"]:
    """Return :class:`LayerNorm` in torch."""
    if cast == "after":
        return F.layer_norm(x, x.shape[-1:], gain, bias, eps)
    return affine(F.layer_norm(x, x.shape[-1:], eps=eps), gain, bias, like=x, cast=cast)


register_norm(
    Norm(
        name="layernorm",
        equation="γ ⊙ (x − μ)/√(v + ε) + β,  μ = mean(x),  v = mean((x − μ)²)",
        source="Ba et al. 2016, arXiv 1607.06450",
        build=LayerNorm,
        properties=frozenset({"per-token", "scale-invariant", "shift-invariant"}),
    )
)
