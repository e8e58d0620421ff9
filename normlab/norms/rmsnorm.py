"""RMSNorm."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.norms import backend
from normlab.norms.affine import affine, check_cast, gain_parameter
from normlab.norms.backend import check_backend
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
        initial_gain: float = 1.0,
        cast: str = "after",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.width, self.eps, self.cast, self.backend = width, eps, check_cast(cast), check_backend(backend)
        self.gain = gain_parameter(width, initial_gain, present=gain)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Normalize each token on its own."""
        if backend.uses_kernels(self.backend, x, self.gain, eps=self.eps):
            y: Tensor = backend.OPERATORS.norm(x, self.gain, None, "rms", self.eps, self.cast == "before")[0]
            return y
        return rms_norm(x, self.gain, self.eps, self.cast)


def rms_norm(
    x: Float[Tensor, "*batch width"], gain: Tensor | None, eps: float, cast: str = "after"
) -> Float[Tensor, "*batch width"]:
    """Return :class:`RMSNorm` in torch."""
    if cast == "after":
        return F.rms_norm(x, x.shape[-1:], gain, eps)
    return affine(F.rms_norm(x, x.shape[-1:], eps=eps), gain, None, like=x, cast=cast)


register_norm(
    Norm(
        name="rmsnorm",
        equation="γ ⊙ x/√(mean(x²) + ε)",
        source="Zhang and Sennrich 2019, arXiv 1910.07467",
        build=RMSNorm,
        properties=frozenset({"per-token", "scale-invariant"}),
    )
)
