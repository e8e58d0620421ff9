"""Attention logits, computed beside the model from its queries and keys."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normlab.recording.plan import Scores
from normlab.recording.sums import Sums


def scores_sums(
    query: Float[Tensor, "batch head token feature"],
    key: Float[Tensor, "batch kv_head source feature"],
    scores: Scores,
    keep: Bool[Tensor, "batch token"] | None,
) -> Iterator[Sums]:
    """Yield each head's sums over the pairs of a query and a key that it may see, in float64.

    Args:
        query: queries per head.
        key: keys per head; consecutive query heads share one where there are fewer.
        scores: what the plan says about them.
        keep: which tokens count, as queries and as keys.
    """
    seen = _visible(query, key, keep, causal=scores.causal)
    scale = query.shape[-1] ** -0.5 if scores.scale is None else scores.scale
    shared = query.shape[1] // key.shape[1]
    for head in range(query.shape[1]):
        # In float64 no precision setting of matrix products applies.
        logits = (query[:, head].double() @ key[:, head // shared].double().mT) * scale
        finite = logits.isfinite() & seen
        held = logits.where(finite, 0.0)
        columns = [
            finite.any(-1).sum(),
            (seen & ~finite).sum(),
            finite.sum(),
            held.sum(),
            held.square().sum(),
        ]
        largest = float(held.abs().max()) if held.numel() else 0.0
        yield Sums("scores", np.array([float(column) for column in columns]), largest)


def _visible(query: Tensor, key: Tensor, keep: Tensor | None, *, causal: bool) -> Tensor:
    batch, _, tokens, _ = query.shape
    seen = torch.ones((batch, tokens, key.shape[2]), dtype=torch.bool, device=query.device)
    seen = seen.tril() if causal else seen
    return seen if keep is None else seen & keep[:, :, None] & keep[:, None, :]
