from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import normlab as nl


@pytest.fixture(scope="session")
def make() -> Callable[..., nn.Module]:
    """A tiny float64 model as it starts, with norms that are exact (ε = 0)."""

    def make(seed: int = 0, **fields: Any) -> nn.Module:
        sizes = {"depth": 3, "width": 8, "heads": 2, "mlp_width": 12, "vocab": 11, "context": 9, "norm_eps": 0.0}
        return nl.build(nl.ModelSpec(**sizes | fields), seed=seed, dtype=torch.float64)

    return make


@pytest.fixture
def stream() -> torch.Tensor:
    """What a first block could receive: two sequences of five tokens of different sizes."""
    generator = torch.Generator().manual_seed(3)
    sizes = torch.rand(2, 5, 1, generator=generator, dtype=torch.float64) + 0.5
    return sizes * torch.randn(2, 5, 8, generator=generator, dtype=torch.float64)
