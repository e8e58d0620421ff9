import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import normlab as nl


@pytest.fixture(scope="session")
def by_hand() -> ModuleType:
    """tests/models/by_hand.py: the zoo's equations, written out."""
    spec = importlib.util.spec_from_file_location("by_hand", Path(__file__).with_name("by_hand.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def make() -> Callable[..., nn.Module]:
    """A tiny float64 model whose gains, biases and branch scales are all moved away from their first values."""

    def make(seed: int = 0, **fields: Any) -> nn.Module:
        sizes = {"depth": 2, "width": 8, "heads": 2, "mlp_width": 12, "vocab": 11, "context": 9}
        model = nl.build(nl.ModelSpec(**sizes | fields), seed=seed, dtype=torch.float64)
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() < 2:
                    parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        return model

    return make


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, 11, (2, 6), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]
