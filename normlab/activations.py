"""Activations of the MLP, by name."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from normlab.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Activation:
    """A pointwise function φ of the MLP.

    Attributes:
        name: the value of ``ModelSpec.activation``.
        equation: φ(z).
        function: φ.
        gated: whether the hidden layer is (W_up z) ⊙ φ(W_gate z) in place of φ(W_up z).
    """

    name: str
    equation: str
    function: Callable[[Tensor], Tensor]
    gated: bool = False


ACTIVATIONS: Registry[Activation] = Registry("activation")


def gelu_tanh(z: Tensor) -> Tensor:
    """z/2 · (1 + tanh(√(2/π)(z + 0.044715 z³))): the GELU that GPT-2 was trained with."""
    return F.gelu(z, approximate="tanh")


_GELU = "z Φ(z), Φ the normal distribution function"
_SILU = "z/(1 + exp(−z))"

for _activation in (
    Activation(name="relu", equation="max(z, 0)", function=F.relu),
    Activation(name="gelu", equation=_GELU, function=F.gelu),
    Activation(name="gelu_tanh", equation="z/2 · (1 + tanh(√(2/π)(z + 0.044715 z³)))", function=gelu_tanh),
    Activation(name="silu", equation=_SILU, function=F.silu),
    Activation(name="tanh", equation="tanh(z)", function=torch.tanh),
    Activation(name="swiglu", equation=_SILU, function=F.silu, gated=True),
    Activation(name="geglu", equation=_GELU, function=F.gelu, gated=True),
):
    ACTIVATIONS.register(_activation)
