"""LayerNorm."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.norms.affine import affine, bias_parameter, check_cast, gain_parameter
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
    ) -> None:
        super().__init__()
        self.width, self.eps, self.cast = width, eps, check_cast(cast)
        self.gain = gain_parameter(width, initial_gain, present=gain)
        self.bias = bias_parameter(width, present=bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each token on its own."""
        if self.cast == "after":
            return F.layer_norm(x, (self.width,), self.gain, self.bias, self.eps)
        return affine(F.layer_norm(x, (self.width,), eps=self.eps), self.gain, self.bias, like=x, cast=self.cast)


register_norm(
    Norm(
        name="layernorm",
        equation="γ ⊙ (x − μ)/√(v + ε) + β,  μ = mean(x),  v = mean((x − μ)²)",
        source="Ba et al. 2016, arXiv 1607.06450",
        build=LayerNorm,
        properties=frozenset({"per-token", "scale-invariant", "shift-invariant"}),
    )
)
