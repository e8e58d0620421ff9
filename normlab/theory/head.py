"""The loss and its gradient at the head (equations H1 to H4 of ``docs/theory.md``)."""

from dataclasses import dataclass

from normlab.spec import ModelSpec
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.matrices import head_variance
from normlab.theory.quenched import log_partition, share


@dataclass(frozen=True, eq=False)
class Head:
    """What the cross-entropy sends back.

    Attributes:
        loss: in nats.
        gradient: E⟨g_i, g_j⟩ at what the head sees.
        role: entries that sum to E‖∂loss/∂W_head‖².
    """

    loss: float
    gradient: Array
    role: Array


def head(spec: ModelSpec, out: Array, geometry: Geometry) -> Head:
    """Return the loss and its gradient, for targets that the model knows nothing of."""
    variance = head_variance(spec)
    logits = spec.width * variance * out
    vocab = spec.vocab
    errors = share(vocab, logits) - 2 / vocab + geometry.equal_targets
    gradient = errors * spec.width * variance / geometry.count**2
    loss = log_partition(vocab, geometry.mean_square(logits))
    return Head(loss, gradient, errors * spec.width * out / geometry.count**2)
