"""Norms as functions of one token: worked examples, invariances, and what a gain and a bias can undo."""

import math

import torch
from torch import Tensor

from normlab.claims.evidence import Number
from normlab.norms import NORMS

WIDTH = 64
_SIZE = {"width": WIDTH}


def draw(seed: int, *shape: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normed(norm: str, x: Tensor, eps: float = 0.0) -> Tensor:
    """Return the registered norm of ``x``, without gain and bias in effect."""
    built: Tensor = NORMS[norm].make(x.shape[-1], eps=eps).double()(x)
    return built.detach()


def gap(found: Tensor, wanted: Tensor) -> float:
    """Return the largest absolute difference."""
    return float((found - wanted).abs().max())


def worked_examples(seed: int) -> list[Number]:
    """Normalize [1, 2, 3, 4] and compare with the three printed decimals."""
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    printed = {
        "layernorm": torch.tensor([-1.342, -0.447, 0.447, 1.342], dtype=torch.float64),
        "rmsnorm": torch.tensor([0.365, 0.730, 1.095, 1.461], dtype=torch.float64),
    }
    size = {"width": 4}
    found = [Number(f"{norm}-example", gap(normed(norm, x), wanted), None, size) for norm, wanted in printed.items()]
    return [*found, Number("rms-of-example", abs(float(x.square().mean().sqrt()) - 2.739), None, size)]


def moments(seed: int) -> list[Number]:
    """Compare RMS² with variance + mean² for tokens of many scales and offsets."""
    x = (draw(seed, 100, WIDTH) + 3 * draw(seed + 1, 100, 1)) * draw(seed + 2, 100, 1).exp()
    square = x.square().mean(-1)
    rest = x.var(-1, correction=0) + x.mean(-1).square()
    return [Number("rms2-is-variance-plus-mean2", float(((square - rest) / square).abs().max()), None, _SIZE)]


def shifts(seed: int) -> list[Number]:
    """Add one constant to every feature of a token, and see what the norms make of it."""
    x, c = draw(seed, 100, WIDTH), 2 * draw(seed + 1, 100, 1).sign()
    return [
        Number(f"{norm}-under-shift", gap(normed(norm, x + c), normed(norm, x)), None, _SIZE)
        for norm in ("layernorm", "rmsnorm")
    ]


def signs_and_ratios(seed: int) -> list[Number]:
    """Count changed signs, and measure changed ratios between features."""
    x = draw(seed, 100, WIDTH) + 1
    found = []
    for norm in ("rmsnorm", "layernorm"):
        y = normed(norm, x)
        ratio = (y[:, 1:] * x[:, :1] - y[:, :1] * x[:, 1:]).abs().max() / x.square().max()
        found += [
            Number(f"{norm}-changed-signs", float((y.sign() != x.sign()).double().mean()), None, _SIZE),
            Number(f"{norm}-changed-ratios", float(ratio), None, _SIZE),
        ]
    return found


def projections(seed: int) -> list[Number]:
    """Compare LayerNorm with RMSNorm of the token projected orthogonally to (1, …, 1)."""
    x = draw(seed, 100, WIDTH) + 2 * draw(seed + 1, 100, 1)
    centred = x - x.mean(-1, keepdim=True)
    return [
        Number(
            "layernorm-of-x-against-rmsnorm-of-projection",
            gap(normed("layernorm", x), normed("rmsnorm", centred)),
            None,
            _SIZE,
        ),
        Number("layernorm-against-rmsnorm-uncentred", gap(normed("layernorm", x), normed("rmsnorm", x)), None, _SIZE),
    ]


def undoing(seed: int) -> list[Number]:
    """Fit the gain and the bias that bring the input back best, for a batch of tokens of different scales.

    BatchNorm: γ = s, β = m, one pair a feature. LayerNorm: each feature's least squares over the tokens.
    """
    x = draw(seed, 100, WIDTH) * draw(seed + 1, 100, 1).exp() + draw(seed + 2, 100, 1)
    return [
        Number(f"{norm}-undone-residual", _residual(normed(norm, x), x), None, _SIZE)
        for norm in ("batchnorm", "layernorm")
    ] + [Number("layernorm-one-token-residual", _residual_of_one(x), None, _SIZE)]


def _residual(y: Tensor, x: Tensor) -> float:
    """Root mean square of what no γ and β per feature can restore, relative to the input's spread."""
    spread = x - x.mean(0)
    slope = ((y - y.mean(0)) * spread).mean(0) / y.var(0, correction=0)
    rest = spread - slope * (y - y.mean(0))
    return float((rest.square().mean() / spread.square().mean()).sqrt())


def _residual_of_one(x: Tensor) -> float:
    """A single token can be restored: γ = σ, β = μ."""
    token = x[:1]
    back = normed("layernorm", token) * token.std(correction=0) + token.mean()
    return gap(back, token)


#: The figures that are quoted together: pooled correlation, mean and largest absolute difference.
QUOTED = (0.9976, 0.19, 0.53)


def outputs_alike(seed: int) -> list[Number]:
    """Compare the outputs of the two norms for Gaussian tokens, per token and pooled.

    Per token y_LN = (y_RMS·rms − μ)/σ is an increasing affine function of y_RMS, so its correlation is 1; pooled
    over tokens it is 1 − Var(μ/σ)/2, and the mean difference is E|μ/σ|. The mismatch is the largest |ln| of the
    ratio of 1 − r, mean and largest difference to the quoted ones, where it is smallest over widths.
    """
    one = draw(seed, 64, WIDTH)
    pairs = zip(normed("layernorm", one), normed("rmsnorm", one), strict=True)
    alone = max(abs(1 - _correlation(a, b)) for a, b in pairs)
    widths = (8, 16, 24, 32, 64, 128, 208, 256, 512)
    centred = min(_mismatch(draw(seed + width, 256, width)) for width in widths)
    offset = min(_mismatch(draw(seed + width, 256, width) + 0.19) for width in widths)
    return [
        Number("per-token-correlation-from-1", alone, None, _SIZE),
        Number("mismatch-of-gaussian-tokens", centred),
        Number("mismatch-of-offset-tokens", offset),
    ]


def _correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


def _mismatch(x: Tensor) -> float:
    ln, rms = normed("layernorm", x), normed("rmsnorm", x)
    difference = (ln - rms).abs()
    found = (1 - _correlation(ln, rms), float(difference.mean()), float(difference.max()))
    wanted = (1 - QUOTED[0], *QUOTED[1:])
    return max(abs(math.log(a / b)) for a, b in zip(found, wanted, strict=True))
