"""RMSNorm."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.norms.affine import affine, check_cast, gain_parameter
from normlab.norms.norm import Norm, register_norm


class RMSNorm(nn.Module):
    """y = γ ⊙ x/√(mean(x²) + ε), the mean over a token's features.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467.

    Args:
        width: d, the number of features.
        eps: ε, in squared units of x.
        gain: whether there is a learnable γ.
        initial_gain: the value of γ at initialisation.
        cast: whether half precision is rounded to ``before`` γ multiplies (Llama, T5) or ``after`` (OLMo 2).

    Raises:
        SpecError: an initial gain without a gain, or another ``cast``.
    """

    def __init__(
        self, width: int, *, eps: float = 1e-5, gain: bool = True, initial_gain: float = 1.0, cast: str = "after"
    ) -> None:
        super().__init__()
        self.width, self.eps, self.cast = width, eps, check_cast(cast)
        self.gain = gain_parameter(width, initial_gain, present=gain)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each token on its own."""
        if self.cast == "after":
            return F.rms_norm(x, (self.width,), self.gain, self.eps)
        return affine(F.rms_norm(x, (self.width,), eps=self.eps), self.gain, None, like=x, cast=self.cast)


register_norm(
    Norm(
        name="rmsnorm",
        equation="γ ⊙ x/√(mean(x²) + ε)",
        source="Zhang and Sennrich 2019, arXiv 1910.07467",
        build=RMSNorm,
        properties=frozenset({"per-token", "scale-invariant"}),
    )
)
