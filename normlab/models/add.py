"""The residual sum, as a module so that both terms and the sum can be observed."""

from jaxtyping import Float
from torch import Tensor, nn


class Add(nn.Module):
    """skip + update."""

    def forward(
        self, skip: Float[Tensor, "batch token width"], update: Float[Tensor, "batch token width"]
    ) -> Float[Tensor, "batch token width"]:
        """Return skip + update."""
        return skip + update


class Defer(nn.Module):
    """Stands where a parallel block has no sum yet: its update waits for the block's last sub-layer."""

    def forward(
        self, skip: Float[Tensor, "batch token width"], update: Float[Tensor, "batch token width"]
    ) -> Float[Tensor, "batch token width"]:
        """Return the update."""
        return update
