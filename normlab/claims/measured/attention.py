"""Queries, keys, logits and what a saturated softmax does to gradients."""

import torch

from normlab.claims.evidence import Number
from normlab.claims.measured.norms import draw
from normlab.data import Random
from normlab.models import build
from normlab.recording import record
from normlab.spec import ModelSpec

_DEPTH = 16


def query_scale(seed: int, width: int = 64) -> list[Number]:
    """Record the rms of queries and keys in every block, with norms before the sub-layers and without."""
    found = []
    for placement in ("pre", "none"):
        spec = ModelSpec(placement=placement, depth=_DEPTH, width=width, activation="relu")
        model = build(spec, seed=seed)
        with record(model, sites=("query", "key"), quantities=("mean_square",)) as recorder, torch.no_grad():
            model(Random(2, 32).draw(10_000 + seed)[0])
        rows = recorder.table()
        for site in ("query", "key"):
            # Over the heads, where each has a row of its own.
            means = rows[rows["site"] == site].groupby("layer")["value"].mean()
            found += [
                Number(f"{site}-rms-{placement}", value**0.5, spec, {"layer": layer})
                for layer, value in zip(means.index.astype(int), means.to_numpy(dtype=float), strict=True)
            ]
    return found


def query_scale_wide(seed: int) -> list[Number]:
    """Record the same in models twice as wide."""
    return query_scale(seed, 128)


def saturation(seed: int) -> list[Number]:
    """Multiply the logits of one head by 1 to 64; the column ``call`` holds the factor.

    The loss is a fixed random functional of the head's output.
    """
    tokens, width = 64, 32
    x = draw(seed, tokens, width)
    q, k, v = (draw(seed + 1 + i, width, width) / width**0.5 for i in range(3))
    probe = draw(seed + 4, tokens, width)
    found = []
    for factor in (1, 2, 4, 8, 16, 32, 64):
        z = x.clone().requires_grad_()
        logits = factor * (z @ q) @ (z @ k).T / width**0.5
        loss = (probe * (logits.softmax(-1) @ (z @ v))).sum()
        at_logits, at_input = torch.autograd.grad(loss, (logits, z))
        columns = {"call": factor, "width": width, "tokens": tokens}
        found += [
            Number("logit-gradient", float(at_logits.norm(dim=-1).median()), None, columns),
            Number("input-gradient", float(at_input.norm()), None, columns),
        ]
    return found
