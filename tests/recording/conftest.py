import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import called
from normlab.recording.native import library
from normlab.recording.observer import Observer


def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: Tests import from it: modules to record, which some of them build upon.
_beside("recorded_parts")


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """tests/recording/reference.py: the quantities, computed slowly from their definitions."""
    return _beside("reference")


@pytest.fixture(scope="session")
def walk() -> ModuleType:
    """tests/recording/walk.py: a forward pass that keeps every tensor."""
    return _beside("walk")


@pytest.fixture(scope="session")
def make() -> Callable[..., nn.Module]:
    """A tiny model, its gains and biases moved away from their first values."""

    def make(dtype: torch.dtype = torch.float32, seed: int = 0, **fields: Any) -> nn.Module:
        sizes: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "vocab": 23, "context": 12}
        model = nl.build(nl.ModelSpec(**sizes | fields), seed=seed, dtype=dtype)
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() < 2:
                    parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).to(dtype))
        return model

    return make


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, 23, (8, 7), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


@pytest.fixture(scope="session")
def value() -> Callable[..., float]:
    """Look one value of a table up by the columns that are given."""

    def value(table: Any, **where: Any) -> float:
        rows = table
        for column, wanted in where.items():
            rows = rows[rows[column] == wanted]
        assert len(rows) == 1, f"{len(rows)} rows for {where}"
        return float(rows["value"].iloc[0])

    return value


@pytest.fixture(params=["compiled", "python"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of modules by the compiled library, and without it."""
    if request.param == "compiled" and library() is None:
        pytest.skip("the package was built without its compiled library")
    if request.param == "python":
        monkeypatch.setattr(called, "Called", called.PythonCalled)
        monkeypatch.setattr(Observer, "reader", property(lambda self: None, lambda self, value: None), False)
