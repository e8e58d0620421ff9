"""What one step, or noise on the weights, does to the function that a model computes."""

import math

import torch
from torch import Tensor

from normlab.claims.evidence import Number
from normlab.data import Random
from normlab.models import Transformer, build
from normlab.spec import ModelSpec

_DEPTHS = (8, 16, 32, 64, 128)
_WIDTH = 64
#: Relative to the weights: small enough for the first order, large enough for float64.
_STEP = 1e-6


def _spec(depth: int, width: int, **fields: object) -> ModelSpec:
    base: dict[str, object] = {"depth": depth, "width": width, "activation": "relu", "vocab": 64}
    return ModelSpec(**(base | fields))  # type: ignore[arg-type]


_SGD: dict[str, dict[str, object]] = {
    "deepnorm": {"placement": "deepnorm", "init": "deepnorm"},
    "post": {"placement": "post"},
    "pre": {"placement": "pre"},
    "sub-ln": {"placement": "sub-ln", "init": "magneto"},
    "t-fixup": {"placement": "none", "init": "t-fixup"},
    "branch-half": {"placement": "completep", "placement_options": (("alpha", 0.5),)},
    "branch-one": {"placement": "completep", "placement_options": (("alpha", 1.0),)},
}


def one_step(seed: int, width: int = _WIDTH) -> list[Number]:
    """Measure rms(F(θ − η g) − F(θ))/η for small η, g the gradient of all blocks' matrices or its sign."""
    found = []
    for name, fields in _SGD.items():
        for depth in _DEPTHS:
            spec = _spec(depth, width, **fields)
            model, tokens, direction = _gradient(spec, seed)
            found.append(Number(f"sgd-{name}", _change(model, tokens, direction), spec))
            if name.startswith("branch"):
                signs = [g.sign() for g in direction]
                found.append(Number(f"sign-{name}", _change(model, tokens, signs), spec))
    return found


def one_step_wide(seed: int) -> list[Number]:
    """Measure the same in models twice as wide."""
    return one_step(seed, 2 * _WIDTH)


def weight_noise(seed: int, width: int = _WIDTH) -> list[Number]:
    """Measure mean |ΔF|²/ε² for independent relative noise ε on all blocks' matrices."""
    found = []
    for name in ("post", "pre", "deepnorm"):
        for depth in _DEPTHS:
            spec = _spec(depth, width, **_SGD[name])
            model = build(spec, seed=seed, dtype=torch.float64)
            tokens = Random(2, 16, vocab=64).draw(10_000 + seed)[0]
            generator = torch.Generator().manual_seed(seed)
            total = 0.0
            for _ in range(2):
                noise = [
                    w.detach().square().mean().sqrt() * torch.randn(w.shape, generator=generator, dtype=torch.float64)
                    for w in _matrices(model)
                ]
                total += _change(model, tokens, noise) ** 2 / 2
            found.append(Number(f"noise-{name}", total, spec))
    return found


def weight_noise_wide(seed: int) -> list[Number]:
    """Measure the same in models twice as wide."""
    return weight_noise(seed, 2 * _WIDTH)


def _matrices(model: Transformer) -> list[Tensor]:
    return [w for w in model.stack("decoder").blocks.parameters() if w.dim() == 2]


def _gradient(spec: ModelSpec, seed: int) -> tuple[Transformer, Tensor, list[Tensor]]:
    model = build(spec, seed=seed, dtype=torch.float64)
    tokens, targets = Random(2, 16, vocab=64).draw(10_000 + seed)
    direction = torch.autograd.grad(model.loss(tokens, targets), _matrices(model))
    return model, tokens, list(direction)


@torch.no_grad()
def _change(model: Transformer, tokens: Tensor, direction: list[Tensor]) -> float:
    """Return the rms of the derivative of the features along ``direction``, by a central difference."""
    weights = _matrices(model)
    size = math.sqrt(sum(float(w.square().sum()) for w in weights))
    eta = _STEP * size / math.sqrt(sum(float(g.square().sum()) for g in direction))
    ends = []
    for factor in (1.0, -2.0):
        for weight, step in zip(weights, direction, strict=True):
            weight.sub_(step, alpha=factor * eta)
        ends.append(model.features(tokens))
    for weight, step in zip(weights, direction, strict=True):
        weight.sub_(step, alpha=eta)
    return float((ends[0] - ends[1]).square().mean().sqrt()) / (2 * eta)
