"""The loss and its gradient at the head (equations H1 to H9 of ``docs/theory.md``)."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from normlab.norms import NORMS
from normlab.theory.forward import Forward
from normlab.theory.kernels import Array
from normlab.theory.matrices import head_variance
from normlab.theory.quenched import LARGEST, log_partition, meeting
from normlab.theory.reasons import NoTheory
from normlab.theory.tied import tied

#: Variance of a tied head's logits up to which two of them act as one whose logits share a part of it (H6).
_TIED: Final = 4.0


@dataclass(frozen=True, eq=False)
class Head:
    """What the cross-entropy sends back.

    Attributes:
        loss: in nats.
        gradient: E⟨g_i, g_j⟩ at what the head sees.
        role: entries that sum to E‖∂loss/∂W_head‖².
        lost: what the norm that gives the head its input takes out of the gradient, as it goes along the token (H7).
        gain: what that adds to the entries of the norm's gain (H8).
        crossed: the covariance of what the table gets as head and as embedding, in both orders (H9).
    """

    loss: float
    gradient: Array
    role: Array
    lost: Array | float = 0.0
    gain: Array | float = 0.0
    crossed: Array | float = 0.0


def head(walked: Forward) -> Head:
    """Return the loss and its gradient, for targets that the model knows nothing of.

    Raises:
        NoTheory: the head is the embedding, and something stands between them through which it cannot be followed.
    """
    spec, out, geometry = walked.spec, walked.out, walked.geometry
    variance, vocab = head_variance(spec), spec.vocab
    logits = spec.width * variance * out
    limit = _TIED if spec.tie_embeddings else LARGEST
    if float(np.max(logits)) > limit:
        raise NoTheory(f"the head's logits have a variance above {limit:g}, beyond which theory is not extended")
    if spec.tie_embeddings:
        return _tied(walked)
    rows, columns = geometry.sides(logits)
    errors = meeting(vocab, logits, np.sqrt(rows * columns)) - 2 / vocab + geometry.equal_targets
    gradient = errors * spec.width * variance / geometry.count**2
    loss = log_partition(vocab, geometry.mean_square(logits))
    return Head(loss, gradient, errors * spec.width * out / geometry.count**2)


def _tied(walked: Forward) -> Head:
    spec, out, count = walked.spec, walked.out, walked.geometry.count**2
    normed = spec.has_final_norm or bool(walked.steps and walked.steps[-1].wiring.norms_stream)
    if spec.two_streams:
        raise NoTheory("a tied head reads the sum of two streams, and the gradient of each goes along its own token")
    if spec.has_embed_norm:
        raise NoTheory("a tied head knows the token that it reads, and a norm stands behind the embedding")
    if normed and "scale-invariant" not in NORMS[spec.norm].properties:
        raise NoTheory("a tied head knows the token that it reads, and a pointwise norm mixes that with its gradient")
    errors = tied(spec, out, walked.held, walked.geometry)
    variance = head_variance(spec)
    return Head(
        loss=errors.loss,
        gradient=errors.products * spec.width * variance / count,
        role=errors.products * spec.width * out / count,
        lost=errors.lost() / count if normed else 0.0,
        gain=errors.gain() / count,
        crossed=errors.crossed(normed=normed) / count,
    )
