"""The same source by NVRTC, for every architecture, without a GPU."""

import json
from importlib.resources import files

import pytest

from normlab import NormlabError
from normlab.cupy_kernels import KernelSpec, every_kernel
from normlab.cupy_kernels.compile import ARCHITECTURES, compiled, missing, ptx

REQUIRED = ARCHITECTURES[:-1]


def record() -> dict[str, dict[str, list[int]]]:
    """Return the recorded costs: registers, stack, spills and shared memory by architecture and symbol."""
    found: dict[str, dict[str, list[int]]] = json.loads(
        files("normlab.cupy_kernels").joinpath("data", "costs.json").read_text()
    )
    return found


RECORDED = [architecture for architecture in REQUIRED if architecture in record()]


def largest() -> tuple[KernelSpec, ...]:
    """Return of each function and pair of types with the widest vectors the kernel that holds most a thread."""
    chosen: dict[tuple[object, ...], KernelSpec] = {}
    for spec in every_kernel():
        key = (spec.function, spec.dtype, spec.team > 32)
        best = chosen.get(key)
        if best is None or spec.vec * spec.per >= best.vec * best.per:
            chosen[key] = spec
    return tuple(chosen.values())


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_without_spills(architecture: str) -> None:
    _, costs = compiled(largest(), architecture)
    assert set(costs) == {spec.symbol for spec in largest()}
    spilled = [symbol for symbol, cost in costs.items() if cost.spill_bytes or cost.stack_bytes]
    if architecture in REQUIRED:
        assert spilled == []
    recorded = record().get(architecture, {})
    assert all(cost.registers <= recorded[symbol][0] + 8 for symbol, cost in costs.items() if symbol in recorded)


@pytest.mark.needs("nvrtc")
def test_wide_vectors_are_single_instructions() -> None:
    specs = [
        KernelSpec("norm_forward", "bf16", "bf16", 8, 4, 128, "rms"),
        KernelSpec("norm_forward", "f32", "f32", 4, 4, 256, "rms"),
    ]
    for spec in specs:
        text = ptx([spec], "sm_90")
        assert text.count("ld.global.nc.v4") >= spec.per and text.count("st.global.cs.v4") >= spec.per


@pytest.mark.parametrize("architecture", RECORDED)
def test_the_record_is_complete_and_without_spills(architecture: str) -> None:
    recorded = record()[architecture]
    assert set(recorded) == {spec.symbol for spec in every_kernel()}
    assert [symbol for symbol, (_, stack, spill, _) in recorded.items() if stack or spill] == []


@pytest.mark.parametrize("architecture", RECORDED)
def test_a_block_fits_on_a_multiprocessor(architecture: str) -> None:
    by_symbol = {spec.symbol: spec for spec in every_kernel()}
    for symbol, (registers, _, _, shared) in record()[architecture].items():
        assert -(-registers // 8) * 8 * by_symbol[symbol].threads <= 65536
        assert shared <= 48 * 1024


def test_what_is_missing_is_said() -> None:
    if reason := missing():
        with pytest.raises(NormlabError, match="kernels cannot be compiled here; missing|CuPy is"):
            compiled([every_kernel()[0]], "sm_90")
        assert "cuda" in reason
