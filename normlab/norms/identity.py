"""No normalization, under a name: what is left of a placement when its norms are taken out."""

from jaxtyping import Float
from torch import Tensor, nn

from normlab.norms.norm import Norm, register_norm


class Identity(nn.Module):
    """y = x.

    Args:
        width: d, the number of features; nothing depends on it.
        eps: accepted like every norm's, and not used.
    """

    def __init__(self, width: int, *, eps: float = 0.0) -> None:
        super().__init__()
        self.width, self.eps = width, eps

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Return the input."""
        return x


register_norm(
    Norm(name="identity", equation="x", source="", build=Identity, properties=frozenset({"per-token", "pointwise"}))
)
