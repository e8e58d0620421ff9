"""The emulator lies beside the tests and is imported as ``cuemu``."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start NVRTC for the architectures that tests will ask for: it works while the emulator's tests run."""
    from cuemu.compiling import started

    from normlab.cupy_kernels.compile import missing

    items = (item for item in session.items if "reports" in getattr(item, "fixturenames", ()))
    asked = dict.fromkeys(
        item.callspec.params.get("architecture") for item in items if item.path.name == "test_nvrtc.py"
    )
    if not session.config.option.collectonly and not missing():
        for architecture in filter(None, asked):
            started(architecture)


def pytest_sessionfinish() -> None:
    """Leave at once what no test waited for."""
    from cuemu.compiling import pool

    if pool.cache_info().currsize:
        pool().shutdown(cancel_futures=True)
