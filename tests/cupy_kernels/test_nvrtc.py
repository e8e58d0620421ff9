"""The same source by NVRTC, for every architecture, without a GPU."""

from pathlib import Path

import pytest
from cuemu.compiling import Report, every_report

from normlab import NormlabError
from normlab.cupy_kernels import every_kernel, export
from normlab.cupy_kernels.accesses import promise, ptx_accesses, width
from normlab.cupy_kernels.compile import ARCHITECTURES, compiled, missing
from normlab.cupy_kernels.costs import digests, recorded
from normlab.cupy_kernels.sass import KINDS

SPECS = {spec.symbol: spec for spec in every_kernel()}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reports(architecture: str) -> dict[str, Report]:
    return every_report(architecture)


@pytest.mark.needs("nvrtc")
def test_every_kernel_compiles_without_spills_as_recorded(reports: dict[str, Report], architecture: str) -> None:
    record = recorded()[architecture].costs
    assert set(reports) == set(SPECS)
    assert [symbol for symbol, of in reports.items() if of.cost.spill_bytes or of.cost.stack_bytes] == []
    more = {symbol: of.cost.registers - record[symbol].registers for symbol, of in reports.items()}
    assert {symbol: count for symbol, count in more.items() if count > 8} == {}


@pytest.mark.needs("nvrtc")
def test_every_kernel_moves_its_rows_by_the_width_that_is_promised(reports: dict[str, Report]) -> None:
    for symbol, of in reports.items():
        spec, made = SPECS[symbol], promise(SPECS[symbol])
        assert of.accesses["ld"][width(spec)] >= made.loads, symbol
        assert of.accesses["st"][width(spec)] >= made.stores, symbol
        assert set(of.accesses["st"]) <= {width(spec)}, symbol


@pytest.mark.needs("nvrtc")
def test_a_file_needs_no_option_of_ours(tmp_path: Path) -> None:
    """What NVRTC takes without CuPy's options, but for where CUDA's headers are, plain nvcc takes too."""
    from cupy._core.core import assemble_cupy_compiler_options
    from cupy.cuda.compiler import _NVRTCProgram

    headers = [option for option in assemble_cupy_compiler_options(()) if option.startswith("-I")]
    for path in export(tmp_path, {spec.function: spec for spec in SPECS.values()}.values()):
        program = _NVRTCProgram(path.read_text(), path.name, (), (), name_expressions=None, method="cubin")
        assert program.compile(("-std=c++17", "-arch=sm_90", *headers))[0]


def test_accesses_are_read_from_ptx() -> None:
    loads = "ld.global.nc.v4.u32 {%r1}, [%rd1];\n ld.global.nc.u16 %rs1, [%rd2];\n ld.global.b32 %r5, [%rd3];\n"
    text = (
        f".visible .entry other(\n) {{ {loads} }}\n.visible .entry one(\n) {{ {loads} st.global.cs.v2.b64 [%rd1];\n }}"
    )
    assert ptx_accesses(text, "one") == {"ld": {16: 1, 2: 1}, "st": {16: 1}}
    assert ptx_accesses(text, "other")["st"] == {}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_record_is_of_these_sources_complete_and_without_spills(name: str) -> None:
    # After a change of the sources run tools/kernel_costs.py and tools/make_kernel_docs.py.
    record = recorded()[name]
    assert dict(record.sources) == digests()
    assert set(record.costs) == set(record.works) == set(SPECS)
    assert [symbol for symbol, cost in record.costs.items() if cost.stack_bytes or cost.spill_bytes] == []


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_record_counts_what_the_formula_computes(name: str, add: bool) -> None:
    """Forward of RMSNorm: x², · scale, · gain, + bias and, fused, + residual; a division and sums once a row."""
    held = [
        spec for spec in SPECS.values() if (spec.function, spec.statistic, spec.add) == ("norm_forward", "rms", add)
    ]
    for spec in (spec for spec in held if spec.per and spec.vec * spec.itemsize == 16 and spec.dtype == spec.weight):
        work = recorded()[name].works[spec.symbol]
        counts = dict(zip(KINDS, work.counts, strict=True))
        assert work.elements == spec.vec * spec.per
        assert 0 < counts["arithmetic"] - (4 + add) * work.elements <= 20, spec.symbol
        # Besides the row's scale, and for each vector a gain that is a single number, which is there but not taken.
        assert 1 <= counts["global"] - (4 + 2 * add) * spec.per <= 1 + spec.per, spec.symbol


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_block_fits_on_a_multiprocessor(name: str) -> None:
    for symbol, cost in recorded()[name].costs.items():
        assert -(-cost.registers // 8) * 8 * SPECS[symbol].threads <= 65536
        assert cost.shared_bytes <= 48 * 1024


def test_what_is_missing_is_said() -> None:
    if reason := missing():
        with pytest.raises(NormlabError, match="kernels cannot be compiled here; missing|CuPy is"):
            compiled([every_kernel()[0]], "sm_90")
        assert "cuda" in reason
