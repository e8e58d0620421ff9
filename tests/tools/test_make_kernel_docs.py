import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from normlab.cupy_kernels import KernelSpec
from normlab.cupy_kernels.compile import Cost

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
    ("registers", "threads", "shared", "warps"),
    [(32, 128, 0, 64), (64, 128, 0, 32), (65, 256, 0, 24), (168, 256, 0, 8), (32, 128, 45 * 1024, 16)],
)
def test_resident_warps(docs: ModuleType, registers: int, threads: int, shared: int, warps: int) -> None:
    spec = KernelSpec("norm_forward", "bf16", "bf16", vec=8, per=4, team=threads, statistic="rms")
    assert docs.resident(spec, Cost(registers, 0, 0, shared), docs.MULTIPROCESSORS["sm_90"]) == warps


def test_more_blocks_than_a_multiprocessor_takes(docs: ModuleType) -> None:
    spec = KernelSpec("norm_forward", "bf16", "bf16", vec=8, per=1, team=32, statistic="rms")
    assert docs.resident(spec, Cost(16, 0, 0, 0), docs.Multiprocessor(64, 10, 64 * 1024)) == 40


def test_bytes_of_an_element(docs: ModuleType) -> None:
    spec = KernelSpec("norm_forward", "bf16", "bf16", vec=8, per=4, team=32, statistic="rms")
    assert docs.moved(spec) == 4 and docs.moved(replace(spec, add=True)) == 8
    assert docs.moved(replace(spec, function="tensor_moments", dtype="f32", vec=4)) == 4
