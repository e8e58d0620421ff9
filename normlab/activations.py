"""Activations of the MLP, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from normlab.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Activation:
    """A pointwise function φ of the MLP.

    Attributes:
        name: the value of ``ModelSpec.activation``.
        equation: φ, or the gated product.
        function: φ.
        gated: whether the hidden layer is (W_up z) ⊙ φ(W_gate z) in place of φ(W_up z).
    """

    name: str
    equation: str
    function: Callable[[Tensor], Tensor]
    gated: bool = False


ACTIVATIONS: Registry[Activation] = Registry("activation")

for _activation in (
    Activation(name="relu", equation="max(z, 0)", function=F.relu),
    Activation(name="gelu", equation="z Φ(z), Φ the normal distribution function", function=F.gelu),
):
    ACTIVATIONS.register(_activation)
