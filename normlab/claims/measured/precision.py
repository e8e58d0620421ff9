"""What floating-point formats keep: variances by two formulas, squares, and sums."""

import torch
from torch import Tensor

from normlab.claims.evidence import Number
from normlab.claims.measured.norms import draw

_PAIR = {"width": 2}


def cancellation(seed: int) -> list[Number]:
    """Compute the variance of [m, m + 1], which is ¼, as mean(x²) − mean(x)² and by Welford's updates."""
    found = []
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        found.append(Number(f"difference-of-squares-{name}", _error(_squares(1000, dtype)), None, _PAIR))
    found.append(Number("welford-float32", _error(_welford(1000, torch.float32)), None, _PAIR))
    found.append(Number("welford-float32-at-100000", _error(_welford(100_000, torch.float32)), None, _PAIR))
    breaks = next(m for m in range(1000, 20_000) if _error(_squares(m, torch.float32)) > 0.01)
    return [*found, Number("float32-breaks-from", float(breaks), None, _PAIR)]


def _squares(mean: int, dtype: torch.dtype) -> float:
    x = torch.tensor([mean, mean + 1], dtype=torch.float64).to(dtype)
    square = ((x * x)[0] + (x * x)[1]) / 2
    centre = (x[0] + x[1]) / 2
    return float(square - centre * centre)


def _welford(mean: int, dtype: torch.dtype) -> float:
    count, centre, total = 0, torch.zeros((), dtype=dtype), torch.zeros((), dtype=dtype)
    for entry in torch.tensor([mean, mean + 1], dtype=torch.float64).to(dtype):
        count += 1
        step = entry - centre
        centre = centre + step / count
        total = total + step * (entry - centre)
    return float(total / count)


def _error(variance: float) -> float:
    """Relative to ¼; an overflow counts as an error of 1."""
    error = abs(variance - 0.25) / 0.25
    return error if error == error and error != float("inf") else 1.0


def overflow(seed: int) -> list[Number]:
    """Square 300 in float16, before and after it becomes a float32."""
    x = torch.tensor(300.0, dtype=torch.float16)
    return [
        Number("300-in-float16", abs(float(x) - 300), None, {"width": 1}),
        Number("square-first-is-finite", float((x * x).isfinite()), None, {"width": 1}),
        Number("float-first-error", abs(float(x.float().square()) - 90_000), None, {"width": 1}),
    ]


def accumulation(seed: int) -> list[Number]:
    """Sum 4096 squares one after the other in three formats, and compare with float64."""
    x = draw(seed, 4096)
    exact = float(x.square().sum())
    return [
        Number(f"sum-of-squares-{name}", abs(_running_sum(x, dtype) - exact) / exact, None, {"width": 4096})
        for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16), ("float32", torch.float32))
    ]


def _running_sum(x: Tensor, dtype: torch.dtype) -> float:
    squares = x.to(dtype).square()
    total = torch.zeros((), dtype=dtype)
    for square in squares:
        total = total + square
    return float(total)
