"""L2 normalization: every token becomes a unit vector."""

from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms import backend
from normlab.norms.affine import affine, check_cast, gain_parameter
from normlab.norms.backend import check_backend
from normlab.norms.norm import Norm, register_norm
from normlab.norms.scalenorm import unit


class L2Norm(nn.Module):
    """y = γ ⊙ x/max(‖x‖, √ε); as published there is no γ, so that tokens lie on the unit sphere.

    Source: Loshchilov et al. 2024 (nGPT), arXiv 2410.01131.

    Args:
        width: d, the number of features.
        eps: ε, in squared units of x; ‖x‖ is never taken to be smaller than √ε.
        gain: whether there is a learnable γ.
        initial_gain: the value of γ at initialisation.
        cast: whether half precision is rounded to ``before`` or ``after`` γ multiplies.
        backend: ``auto``, ``torch`` or ``cupy`` (:mod:`normlab.norms.backend`).

    Raises:
        SpecError: an initial gain without a gain, or another ``cast``.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: float = 1e-5,
        gain: bool = False,
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
            y: Tensor = backend.OPERATORS.norm(x, self.gain, None, "l2", self.eps, self.cast == "before")[0]
            return y
        return affine(unit(x, self.eps), self.gain, None, like=x, cast=self.cast)


register_norm(
    Norm(
        name="l2norm",
        equation="x/max(‖x‖, √ε)",
        source="Loshchilov et al. 2024, arXiv 2410.01131",
        build=L2Norm,
        properties=frozenset({"per-token", "scale-invariant"}),
    )
)
