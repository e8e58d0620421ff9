"""DyT (dynamic tanh): a bounded function of each entry in place of a norm."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms import backend
from normlab.norms.affine import affine, bias_parameter, gain_parameter, wide
from normlab.norms.backend import check_backend
from normlab.norms.norm import Norm, register_norm


class DyT(nn.Module):
    """y = γ ⊙ tanh(α x) + β, with one learnable number α.

    Source: Zhu et al. 2025, arXiv 2503.10622.

    Args:
        width: d, the number of features.
        eps: accepted like every norm's, and not used.
        alpha: α at initialisation, in 1/units of x.
        gain: whether there is a learnable γ.
        bias: whether there is a learnable β.
        initial_gain: the value of γ at initialisation.
        backend: ``auto``, ``torch`` or ``cupy`` (:mod:`normlab.norms.backend`).

    Raises:
        SpecError: an initial gain without a gain.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: float = 0.0,
        alpha: float = 0.5,
        gain: bool = True,
        bias: bool = True,
        initial_gain: float = 1.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.width, self.eps, self.backend = width, eps, check_backend(backend)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.gain = gain_parameter(width, initial_gain, present=gain)
        self.bias = bias_parameter(width, present=bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Squash each entry on its own."""
        if backend.uses_kernels(self.backend, x, self.alpha, self.gain, self.bias):
            y: Tensor = backend.OPERATORS.squash(x, self.alpha, None, self.gain, self.bias, "tanh")
            return y
        return dyt(x, self.alpha, self.gain, self.bias)


def dyt(
    x: Float[Tensor, "*batch width"], alpha: Tensor, gain: Tensor | None, bias: Tensor | None
) -> Float[Tensor, "*batch width"]:
    """Return :class:`DyT` in torch."""
    return affine(torch.tanh(alpha * wide(x)), gain, bias, like=x)


register_norm(
    Norm(
        name="dyt",
        equation="γ ⊙ tanh(α x) + β,  α one number",
        source="Zhu et al. 2025, arXiv 2503.10622",
        build=DyT,
        properties=frozenset({"per-token", "pointwise"}),
    )
)
