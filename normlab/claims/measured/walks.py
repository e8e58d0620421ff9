"""How far sums of updates go: random walks, and the streams of two placements."""

import math

import torch
from torch import Tensor

from normlab.claims.evidence import Number
from normlab.claims.measured.norms import draw
from normlab.data import Random
from normlab.models import build
from normlab.spec import ModelSpec

_WIDTH = 1024
_SIZE = {"width": _WIDTH}


def ideal_walk(seed: int) -> list[Number]:
    """Compare 80 with 12 independent unit updates, alone and added to a unit start."""
    width = 16_384  # so that one draw gives the ratio to a per cent
    sums = draw(seed, 80, width).cumsum(0)
    start = draw(seed + 10_000, width)
    return [
        Number("walk-ratio-without-start", _rms(sums[79]) / _rms(sums[11]), None, {"width": width}),
        Number("walk-ratio-with-start", _rms(start + sums[79]) / _rms(start + sums[11]), None, {"width": width}),
    ]


def biased_walks(seed: int) -> list[Number]:
    """Fit the growth of walks of unit variance whose updates share a mean, a direction, or nothing."""
    noise = draw(seed, 256, _WIDTH)
    direction = draw(seed + 1, _WIDTH)
    direction = direction - direction.mean()
    signs = draw(seed + 2, 256, 1).sign()
    walks = {
        "shared-mean": noise + 0.5,
        "shared-direction": noise + 0.5 * direction / _rms(direction),
        "drawn-mean": noise + 0.5 * signs,
        "zero-mean": noise,
    }
    found = [Number(f"{name}-rms", _slope(walk, centred=False), None, _SIZE) for name, walk in walks.items()]
    return [*found, Number("shared-mean-deviation", _slope(walks["shared-mean"], centred=True), None, _SIZE)]


def _slope(updates: Tensor, *, centred: bool) -> float:
    sums = updates.cumsum(0)
    sums = sums - sums.mean(-1, keepdim=True) if centred else sums
    steps = torch.tensor([16, 32, 64, 128, 256])
    x, y = steps.double().log(), sums[steps - 1].square().mean(-1).sqrt().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


def _rms(x: Tensor) -> float:
    return math.sqrt(float(x.square().mean()))


def turned_streams(seed: int, width: int = 64) -> list[Number]:
    """Measure 1 − cos(x_0, x_L) of a DeepNorm's and a Post-LN's stream, mean over tokens, over depths.

    RMSNorm: LayerNorm takes a token's mean out at once, which turns it by 1/(2d) at any depth.
    """
    found = []
    for placement, init in (("deepnorm", "deepnorm"), ("post", "xavier")):
        for depth in (4, 8, 16, 32, 64):
            spec = ModelSpec(
                placement=placement, norm="rmsnorm", init=init, depth=depth, width=width, activation="relu"
            )
            model = build(spec, seed=seed)
            with torch.no_grad():
                start = model.stack("decoder").embedding(Random(2, 16).draw(10_000 + seed)[0])
                end = model.stack("decoder").run(start, None)
            cosine = torch.nn.functional.cosine_similarity(start, end, dim=-1).mean()
            found.append(Number(f"turned-{placement}", 1 - float(cosine), spec))
    return found


def turned_streams_wide(seed: int) -> list[Number]:
    """Measure the same in models twice as wide."""
    return turned_streams(seed, 128)
