"""Statistics over a batch: what other tokens do to a token, and the gap between training and evaluation."""

import torch
from torch import Tensor, nn

from normlab.claims.evidence import Number
from normlab.claims.measured.norms import draw
from normlab.norms import NORMS, padding

WIDTH = 32
_SIZE = {"width": WIDTH}
_PER_TOKEN = ("layernorm", "rmsnorm", "groupnorm")


def _norm(name: str) -> nn.Module:
    return NORMS[name].make(WIDTH, eps=1e-5).double()


def contamination(seed: int) -> list[Number]:
    """Change what stands in padded positions, and see how far the real tokens' results move."""
    x, real = draw(seed, 4, 16, WIDTH), torch.ones(4, 16, dtype=torch.bool)
    real[:, 10:] = False
    other = torch.where(real[..., None], x, 5 + draw(seed + 1, 4, 16, WIDTH))
    found = [Number(f"{name}-padding", _moved(_norm(name), x, other, real), None, _SIZE) for name in _NORMS]
    with padding(real):
        masked = _moved(_norm("batchnorm"), x, other, real)
    return [*found, Number("batchnorm-padding-masked", masked, None, _SIZE)]


def leakage(seed: int) -> list[Number]:
    """Change later positions, and see how far earlier positions' results move."""
    x = draw(seed, 4, 16, WIDTH)
    early = torch.zeros(4, 16, dtype=torch.bool)
    early[:, :8] = True
    other = torch.where(early[..., None], x, 5 + draw(seed + 1, 4, 16, WIDTH))
    return [Number(f"{name}-leak", _moved(_norm(name), x, other, early), None, _SIZE) for name in _NORMS]


_NORMS = ("batchnorm", *_PER_TOKEN)


def _moved(norm: nn.Module, x: Tensor, other: Tensor, kept: Tensor) -> float:
    return float((norm(x)[kept] - norm(other)[kept]).abs().max().detach())


def single_token(seed: int) -> list[Number]:
    """Normalize one token with running statistics, after batches of the distribution it comes from.

    The deviation is from (x − m)/s with the distribution's own mean and standard deviation.
    """
    mean, scale = draw(seed, WIDTH), draw(seed + 1, WIDTH).exp()
    norm = _norm("batchnorm")
    for step in range(200):
        norm(mean + scale * draw(seed + 2 + step, 16, 16, WIDTH))
    token = mean + scale * draw(seed + 1000, 1, 1, WIDTH)
    norm.eval()
    normalised = norm(token).detach()
    return [
        Number("single-token-deviation", float((normalised - (token - mean) / scale).abs().max()), None, _SIZE),
        Number("single-token-in-training", float(_raises(_norm("batchnorm"), token)), None, _SIZE),
    ]


def _raises(norm: nn.Module, token: Tensor) -> bool:
    try:
        norm(token)
    except ValueError:
        return True
    return False


def train_eval_gap(seed: int) -> list[Number]:
    """Measure rms(train − eval)/rms(eval) of BatchNorm after burn-in, against the number of tokens in a batch.

    The batch's mean and standard deviation miss the true ones by 1/√n and 1/√(2n).
    """
    found = []
    for count in (4, 8, 16, 32, 64, 128, 256):
        norm = _norm("batchnorm")
        for step in range(100):
            norm(draw(seed + 1 + step, 1024, WIDTH))
        gaps = [_gap(norm, draw(seed + 5000 + 100 * count + step, count, WIDTH)) for step in range(8)]
        root = float(torch.tensor(gaps).square().mean().sqrt())
        found.append(Number("train-eval-gap", root, None, {**_SIZE, "batch": None, "tokens": count, "depth": 0}))
    group = _norm("groupnorm")
    return [*found, Number("groupnorm-train-eval-gap", _gap(group, draw(seed, 8, WIDTH)), None, _SIZE)]


def _gap(norm: nn.Module, x: Tensor) -> float:
    trained = norm.train()(x)
    kept = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    evaluated = norm.eval()(x)
    for name, buffer in kept.items():
        norm.get_buffer(name).copy_(buffer)
    return float(((trained - evaluated).square().mean() / evaluated.square().mean()).sqrt().detach())
