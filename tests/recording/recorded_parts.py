"""Modules that tests record, and runs that they make of a model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import normlab as nl

#: What the fixtures ``make`` and ``value`` are.
Make = Callable[..., nn.Module]
Value = Callable[..., float]

#: Where torch keeps what is called in place of a module: its compiled code, or what tells a recorder.
SLOT = "_compiled_call_impl"


class Makes(nn.Module):
    """Gives what a function makes of its input."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, given: Any) -> Any:
        return self.function(given)


class Scaled(nn.Module):
    """Multiplies by a number, which a copy can have another one of."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([factor]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def draw(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def heard(model: nn.Module) -> list[str]:
    """The modules in whose place something is called."""
    return [path for path, module in model.named_modules() if SLOT in module.__dict__]


def run(model: nn.Module, *batches: Any, scale: float = 1.0, **options: Any) -> Any:
    with nl.record(model, loss_scale=scale, **options) as recorder:
        for batch in batches:
            (model.loss(*batch) * (scale / len(batches))).backward()
    return recorder


def micro(batch: Any, size: int) -> list[Any]:
    return list(zip(*(part.split(size) for part in batch), strict=True))


def assert_same_values(one: pd.DataFrame, two: pd.DataFrame, rtol: float = 1e-12) -> None:
    pd.testing.assert_frame_equal(one.drop(columns="value"), two.drop(columns="value"))
    np.testing.assert_allclose(one["value"], two["value"], rtol=rtol, atol=1e-13)
