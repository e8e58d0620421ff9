"""The factor b of a residual branch."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normlab.placements import Wiring


class BranchScale(nn.Module):
    """b · x, with b a fixed number, a learnable scalar, or one learnable factor a feature.

    Args:
        wiring: b's value (at initialisation where it is learnable), and whether it is learnable.
        width: number of features.
    """

    def __init__(self, wiring: Wiring, width: int) -> None:
        super().__init__()
        self.value = wiring.branch_scale
        shape = () if wiring.learn_branch_scale == "scalar" else (width,)
        self.scale = nn.Parameter(torch.full(shape, float(self.value))) if wiring.learn_branch_scale else None

    @property
    def factor(self) -> Tensor | float:
        """What b is now."""
        return self.value if self.scale is None else self.scale

    def forward(self, x: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        """Scale the branch."""
        return x * self.factor
