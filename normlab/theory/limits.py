"""How far theory of gradients has been tested (``docs/theory.md``, "No theory")."""

from typing import Final

import numpy as np

from normlab.theory.forward import Forward
from normlab.theory.mixing import AttentionMap

#: Variance of attention logits, less their common part, up to which gradients are within their bars.
LOGITS: Final = 8.0
#: Share of the embedding in what a tied head sees, likewise.
HELD: Final = 0.2


def beyond(walked: Forward) -> str:
    """Return why gradients of a model are beyond what theory is tested for; nothing where they are not."""
    if max(map(_largest, walked.stacks), default=0.0) > LOGITS:
        return f"attention logits have a variance above {LOGITS:g}, beyond which gradients are not extended"
    if walked.spec.tie_embeddings and _held(walked) > HELD:
        return (
            f"more than {100 * HELD:g} % of what the tied head sees is still the embedding of the token that it reads"
        )
    return ""


def _largest(part: Forward) -> float:
    """The largest variance of attention logits of a stack, less what they have in common."""
    found = [0.0]
    for step in part.steps:
        mixer = step.mixer
        if isinstance(mixer, AttentionMap) and mixer.queries is not None and mixer.keys is not None:
            keys = part.geometry.apart(mixer.keys.value)
            found.append(float(np.max(part.geometry.mean_square(mixer.queries.value) * keys)))
    return max(found)


def _held(walked: Forward) -> float:
    """The share of the embedding in the mean square of what the head sees."""
    scale = walked.spec.embedding_scale(walked.stack)
    own = (scale.std * scale.multiplier) ** 2 * walked.held.first * walked.held.second
    return float(walked.geometry.mean_square(own + 0 * walked.out) / walked.geometry.mean_square(walked.out))
