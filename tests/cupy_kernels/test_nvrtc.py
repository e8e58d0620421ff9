"""The same source by NVRTC, for every architecture, without a GPU."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from normlab import NormlabError
from normlab.cupy_kernels import KernelSpec, every_kernel
from normlab.cupy_kernels.compile import ARCHITECTURES, Cost, compiled, missing, ptx
from normlab.cupy_kernels.costs import digests, recorded

#: All kernels are compiled for this one, of the others those that hold most: four times all would take ten minutes.
WHOLE = "sm_90"
BATCH = 40


def largest() -> tuple[KernelSpec, ...]:
    """Return of each function, statistic and activation type with and without barriers the kernel that holds most."""
    chosen: dict[tuple[object, ...], KernelSpec] = {}
    for spec in every_kernel():
        key = (spec.function, spec.statistic, spec.add, spec.dtype, spec.team > 32)
        best = chosen.get(key)
        if best is None or spec.vec * spec.per >= best.vec * best.per:
            chosen[key] = spec
    return tuple(chosen.values())


def cost_of(batch: tuple[KernelSpec, ...], architecture: str) -> dict[str, Cost]:
    return compiled(batch, architecture)[1]


@pytest.mark.needs("nvrtc")
def test_kernels_compile_without_spills_as_recorded() -> None:
    jobs = []
    for architecture in ARCHITECTURES:
        specs = every_kernel() if architecture == WHOLE else largest()
        jobs += [(specs[start : start + BATCH], architecture) for start in range(0, len(specs), BATCH)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(cost_of, *zip(*jobs, strict=True)))
    for (specs, architecture), costs in zip(jobs, results, strict=True):
        assert set(costs) == {spec.symbol for spec in specs}
        record = recorded()[architecture].costs
        for symbol, cost in costs.items():
            assert (cost.spill_bytes, cost.stack_bytes) == (0, 0), (architecture, symbol)
            assert cost.registers <= record[symbol].registers + 8, (architecture, symbol)


@pytest.mark.needs("nvrtc")
def test_wide_vectors_are_single_instructions() -> None:
    specs = [
        KernelSpec("norm_forward", "bf16", "bf16", 8, 4, 128, "rms"),
        KernelSpec("norm_forward", "f32", "f32", 4, 4, 256, "rms"),
    ]
    for spec in specs:
        text = ptx([spec], "sm_90")
        assert text.count("ld.global.nc.v4") >= spec.per and text.count("st.global.cs.v4") >= spec.per


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_record_is_of_these_sources_complete_and_without_spills(architecture: str) -> None:
    # After a change of the sources run tools/kernel_costs.py and tools/make_kernel_docs.py.
    record = recorded()[architecture]
    assert dict(record.sources) == digests()
    assert set(record.costs) == {spec.symbol for spec in every_kernel()}
    assert [symbol for symbol, cost in record.costs.items() if cost.stack_bytes or cost.spill_bytes] == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_block_fits_on_a_multiprocessor(architecture: str) -> None:
    by_symbol = {spec.symbol: spec for spec in every_kernel()}
    for symbol, cost in recorded()[architecture].costs.items():
        assert -(-cost.registers // 8) * 8 * by_symbol[symbol].threads <= 65536
        assert cost.shared_bytes <= 48 * 1024


def test_what_is_missing_is_said() -> None:
    if reason := missing():
        with pytest.raises(NormlabError, match="kernels cannot be compiled here; missing|CuPy is"):
            compiled([every_kernel()[0]], "sm_90")
        assert "cuda" in reason
