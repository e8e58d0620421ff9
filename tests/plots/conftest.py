import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest


@pytest.fixture(scope="session")
def sim() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plotted", Path(__file__).with_name("simulated.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def table(sim: ModuleType) -> pd.DataFrame:
    """Two placements, three depths, four seeds."""
    return sim.sweep(depths=(2, 8, 16), seeds=4)


@pytest.fixture(scope="session")
def small(sim: ModuleType) -> pd.DataFrame:
    """Two placements, two depths, two seeds."""
    return sim.sweep(depths=(2, 4), seeds=2)


@pytest.fixture(scope="session")
def many(sim: ModuleType) -> pd.DataFrame:
    """Twenty placements, two depths, one seed."""
    return sim.sweep([f"kind{number}" for number in range(20)], depths=(2, 4), seeds=1)
