import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from normlab.cupy_kernels import KernelSpec

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_kernel_docs", ROOT / "tools/make_kernel_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_a_function_of_the_tables_and_the_record(docs: ModuleType) -> None:
    # After a change run tools/kernel_costs.py and tools/make_kernel_docs.py.
    assert docs.PAGE.read_text(encoding="utf-8") == docs.page()


@pytest.mark.parametrize(
    ("registers", "threads", "warps"), [(32, 128, 64), (64, 128, 32), (65, 256, 24), (168, 256, 8)]
)
def test_resident_warps(docs: ModuleType, registers: int, threads: int, warps: int) -> None:
    spec = KernelSpec("norm_forward", "bf16", "bf16", vec=8, per=4, team=threads, statistic="rms")
    assert docs.resident(spec, registers, 64) == warps
