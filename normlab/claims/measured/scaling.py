"""Scale the weights before a norm: what stays, and what happens to the gradient."""

from typing import cast

import torch
from torch import Tensor

from normlab.claims.evidence import Number
from normlab.claims.measured.models import blocks_of, sublayers_of
from normlab.claims.measured.norms import WIDTH, draw, gap
from normlab.models import build
from normlab.models.mlp import MLP
from normlab.norms import NORMS
from normlab.spec import ModelSpec

_SIZE = {"width": WIDTH}
FACTORS = (0.1, 3.0, 10.0)


def upstream_scale(seed: int) -> list[Number]:
    """Scale W in N(W h) and in a whole Pre-LN block, and compare outputs and gradients.

    The gradient's deviation is ‖α·∂L/∂(αW) − ∂L/∂W‖/‖∂L/∂W‖.
    """
    weight, h, probe = draw(seed, WIDTH, WIDTH) / 8, draw(seed + 1, 20, WIDTH), draw(seed + 2, 20, WIDTH)
    found = []
    for norm in ("layernorm", "rmsnorm"):
        outputs, gradients = zip(*(_scaled(norm, 0.0, weight, h, probe, a) for a in FACTORS), strict=True)
        base, slope = _scaled(norm, 0.0, weight, h, probe, 1.0)
        found += [
            Number(f"{norm}-output-under-scale", max(gap(out, base) for out in outputs), None, _SIZE),
            Number(f"{norm}-gradient-under-scale", max(_relative(g, slope) for g in gradients), None, _SIZE),
        ]
    base, slope = _scaled("layernorm", 0.0, weight, h, probe, 1.0)
    flipped, _ = _scaled("layernorm", 0.0, weight, h, probe, -2.0)
    small, _ = _scaled("layernorm", 1e-5, weight, h, probe, 1e-3)
    return [
        *found,
        Number("negative-factor-flips-sign", gap(flipped, -base), None, _SIZE),
        Number("output-under-scale-with-eps", gap(small, base), None, _SIZE),
        *_whole_block(seed),
    ]


def _scaled(norm: str, eps: float, weight: Tensor, h: Tensor, probe: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Return the output and α times the gradient with respect to the scaled weight."""
    w = (factor * weight).requires_grad_()
    y = NORMS[norm].make(WIDTH, eps=eps).double()(h @ w.T)
    (gradient,) = torch.autograd.grad((y * probe).sum(), w)
    return y.detach(), factor * gradient


def _relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def _whole_block(seed: int) -> list[Number]:
    """Scale the last matrix of the first branch of a Pre-LN model: the stream does not scale along."""
    spec = ModelSpec(placement="pre", depth=2, width=32, activation="relu", vocab=64)
    return [Number("pre-block-output-under-scale", _moved_by_scale(spec, seed, "down")[0], None, {"width": 32})]


def scale_invariant_weights(seed: int) -> list[Number]:
    """Scale W_down by k under an output norm: the output stays and the gradient becomes 1/k of what it was."""
    found = []
    for placement in ("peri", "reordered", "pre"):
        spec = ModelSpec(placement=placement, depth=2, width=32, activation="relu", vocab=64, norm_eps=1e-30)
        moved, gradient = _moved_by_scale(spec, seed, "down")
        found.append(Number(f"{placement}-output-under-scale", moved, None, {"width": 32}))
        if placement != "pre":
            found.append(Number(f"{placement}-gradient-under-scale", gradient, None, {"width": 32}))
    return found


def _moved_by_scale(spec: ModelSpec, seed: int, role: str, factor: float = 10.0) -> tuple[float, float]:
    """Relative change of the features and of k times the gradient when the role's first matrix is scaled."""
    outputs, gradients = [], []
    tokens = torch.randint(0, spec.vocab, (2, 8), generator=torch.Generator().manual_seed(seed))
    for k in (1.0, factor):
        model = build(spec, seed=seed, dtype=torch.float64)
        weight = getattr(sublayers_of(blocks_of(model)[0])[-1].mixer, role).weight
        with torch.no_grad():
            weight.mul_(k)
        features = model.features(tokens)
        outputs.append(features.detach())
        (gradient,) = torch.autograd.grad(features.square().mul(draw(seed, *features.shape)).sum(), weight)
        gradients.append(k * gradient)
    return _relative(outputs[1], outputs[0]), _relative(gradients[1], gradients[0])


def inner_scale(seed: int) -> list[Number]:
    """Scale W_up by 10 and compare W_down's gradient, with and without a norm on the branch's output."""
    found = []
    for placement in ("peri", "pre"):
        gradients = []
        for k in (1.0, 10.0):
            spec = ModelSpec(placement=placement, depth=1, width=32, activation="relu", vocab=64, norm_eps=1e-30)
            model = build(spec, seed=seed, dtype=torch.float64)
            mlp = cast(MLP, sublayers_of(blocks_of(model)[0])[-1].mixer)
            with torch.no_grad():
                mlp.up.weight.mul_(k)
            tokens = torch.randint(0, spec.vocab, (2, 8), generator=torch.Generator().manual_seed(seed))
            features = model.features(tokens)
            loss = features.square().mul(draw(seed, *features.shape)).sum()
            gradients.append(torch.autograd.grad(loss, mlp.down.weight)[0])
        changed = _relative(gradients[1], gradients[0])
        found.append(Number(f"{placement}-gradient-under-inner-scale", changed, None, {"width": 32, "depth": 1}))
    return found
