"""Losses: the next-token cross-entropy, and a linear probe that isolates the network from the head.

A loss is called as ``loss(model, tokens, targets)`` and returns a scalar. Losses are frozen dataclasses, so
they can be compared, sent to other processes, and written into a table's column ``loss`` by their names.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normlab.models import Transformer


class Loss(Protocol):
    """Anything that turns a model and a batch into a scalar."""

    @property
    def name(self) -> str:
        """The value of the table's column ``loss``."""

    def __call__(
        self, model: Transformer, tokens: Int[Tensor, "batch token"], targets: Int[Tensor, "batch token"]
    ) -> Float[Tensor, ""]:
        """Return the loss."""


@dataclass(frozen=True)
class CrossEntropyLoss:
    """Mean over all positions of −log softmax(logits)[target], in nats: the model's own loss."""

    @property
    def name(self) -> str:
        """The value of the table's column ``loss``."""
        return "cross-entropy"

    def __call__(
        self, model: Transformer, tokens: Int[Tensor, "batch token"], targets: Int[Tensor, "batch token"]
    ) -> Float[Tensor, ""]:
        """Return the loss."""
        return model.loss(tokens, targets)


@dataclass(frozen=True)
class ProbeLoss:
    """(1/n) Σ_i ⟨r_i, x_i⟩ over the n tokens of a batch, x what the head would see, r_i ~ N(0, I/d).

    Its gradient with respect to x_i is r_i/n whatever the network does: of the same size at every depth,
    and, for one shared r, the same for every token.

    Attributes:
        coherent: one r for all tokens, in place of one each.
        seed: of r.
    """

    coherent: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        """The value of the table's column ``loss``."""
        return "probe-coherent" if self.coherent else "probe"

    def __call__(
        self, model: Transformer, tokens: Int[Tensor, "batch token"], targets: Int[Tensor, "batch token"]
    ) -> Float[Tensor, ""]:
        """Return the loss."""
        x = model.features(tokens, targets)
        batch, count, width = x.shape
        shape = (1, 1, width) if self.coherent else (batch, count, width)
        # Drawn in float32 on the CPU, so that dtype and device do not change the probe.
        r = torch.randn(shape, generator=torch.Generator().manual_seed(self.seed)).to(x) * width**-0.5
        return (r * x).sum() / (batch * count)


cross_entropy = CrossEntropyLoss()


def probe(coherent: bool = False, seed: int = 0) -> ProbeLoss:
    """Return the linear probe (1/n) Σ_i ⟨r_i, x_i⟩ with r_i ~ N(0, I/d).

    Args:
        coherent: one r for all tokens, in place of an independent one each.
        seed: of r; the same seed gives the same r for the same shape.

    Returns:
        A callable: ``probe()(model, tokens, targets)`` gives a scalar.
    """
    return ProbeLoss(coherent=coherent, seed=seed)
