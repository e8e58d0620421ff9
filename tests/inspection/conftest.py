import copy
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import jaxtyping
import pytest
import torch

from normlab.inspection import Finding, Inspection, inspect
from normlab.models import Transformer


def _beside(name: str) -> ModuleType:
    """Import a module of this folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


#: Tests import from it.
_beside("compared_models")


@pytest.fixture(scope="session")
def planted() -> ModuleType:
    """planted.py: models in which something is wrong."""
    return _beside("planted")


@pytest.fixture(scope="session")
def loops() -> ModuleType:
    """plain_loops.py: real models as plain loops."""
    return _beside("plain_loops")


@pytest.fixture(scope="session")
def numbers() -> ModuleType:
    """plain_numbers.py: what is to be said of them."""
    return _beside("plain_numbers")


@pytest.fixture(scope="session")
def checkpoints() -> ModuleType:
    """checkpoints.py: tiny checkpoints of transformers."""
    return _beside("checkpoints")


@pytest.fixture(scope="session")
def seen(planted: ModuleType) -> Callable[..., Inspection]:
    """Inspect a planted model once: ``seen("with_idle_block")``."""

    @cache
    def inspected(name: str, backward: bool = True) -> Inspection:
        return inspect(getattr(planted, name)(), batch=2, tokens=24, backward=backward)

    return inspected


@pytest.fixture(scope="session")
def finding(seen: Callable[..., Inspection]) -> Callable[[str, str], Finding]:
    """What is said of a planted model: ``finding("with_idle_block", "idle blocks")``."""

    def found(name: str, topic: str) -> Finding:
        (one,) = [one for one in seen(name).findings if one.topic == topic]
        return one

    return found


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments reach the library as they are given, as outside of the tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def pair(planted: ModuleType) -> tuple[Transformer, Transformer]:
    """A clean model, and the same with a larger MLP matrix in block 3."""
    one = planted.clean()
    two = copy.deepcopy(one)
    with torch.no_grad():
        planted.mixer(two, 3, "mlp").down.weight.mul_(1.3)
    return one, two
