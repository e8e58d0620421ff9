"""The position-wise sub-layer."""

from jaxtyping import Float
from torch import Tensor, nn

from normlab.activations import ACTIVATIONS
from normlab.models.linear import Linear
from normlab.placements import Wiring
from normlab.spec import ModelSpec


class MLP(nn.Module):
    """W_down φ(W_up z), or W_down((W_up z) ⊙ φ(W_gate z)) for a gated activation.

    Args:
        spec: the model that it belongs to.
        wiring: whether its placement puts a norm before W_down.
    """

    def __init__(self, spec: ModelSpec, wiring: Wiring) -> None:
        super().__init__()
        activation = ACTIVATIONS[spec.activation]
        self.function = activation.function
        shapes = spec.matrices("mlp")
        self.up = Linear(*shapes["up"], bias=spec.bias)
        self.gate = Linear(*shapes["gate"], bias=spec.bias) if activation.gated else None
        self.mid_norm = spec.build_norm(spec.hidden_width) if wiring.mid_norm else None
        self.down = Linear(*shapes["down"], bias=spec.bias)

    def forward(self, z: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Transform each position on its own."""
        hidden = self.up(z)
        hidden = self.function(hidden) if self.gate is None else hidden * self.function(self.gate(z))
        return self.down(hidden if self.mid_norm is None else self.mid_norm(hidden))
