"""Derf: the error function of each entry in place of a norm."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.affine import affine, bias_parameter, gain_parameter, wide
from normlab.norms.norm import Norm, register_norm


class Derf(nn.Module):
    """y = γ ⊙ erf(α x + s) + β, with two learnable numbers α and s.

    Source: Chen et al. 2025, arXiv 2512.10938.

    Args:
        width: d, the number of features.
        eps: accepted like every norm's, and not used.
        alpha: α at initialisation, in 1/units of x.
        shift: s at initialisation.
        gain: whether there is a learnable γ.
        bias: whether there is a learnable β.
        initial_gain: the value of γ at initialisation.

    Raises:
        SpecError: an initial gain without a gain.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: float = 0.0,
        alpha: float = 0.5,
        shift: float = 0.0,
        gain: bool = True,
        bias: bool = True,
        initial_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.width, self.eps = width, eps
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.shift = nn.Parameter(torch.tensor(float(shift)))
        self.gain = gain_parameter(width, initial_gain, present=gain)
        self.bias = bias_parameter(width, present=bias)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Squash each entry on its own."""
        return affine(torch.erf(self.alpha * wide(x) + self.shift), self.gain, self.bias, like=x)


register_norm(
    Norm(
        name="derf",
        equation="γ ⊙ erf(α x + s) + β,  α and s one number each",
        source="Chen et al. 2025, arXiv 2512.10938",
        build=Derf,
        properties=frozenset({"per-token", "pointwise"}),
    )
)
