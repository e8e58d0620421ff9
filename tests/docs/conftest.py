import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def pages() -> ModuleType:
    """tests/docs/pages.py: what the pages say, as data."""
    spec = importlib.util.spec_from_file_location("pages", Path(__file__).with_name("pages.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
