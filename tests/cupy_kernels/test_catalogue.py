"""All kernels, as a table and as files."""

import json
import re
from pathlib import Path

import pytest
from cuemu import build
from hypothesis import given
from hypothesis import strategies as st

from normlab import NormlabError
from normlab.cupy_kernels import DEVICES, KernelSpec, Request, description, dispatch_table, every_kernel, export, plan
from normlab.cupy_kernels.catalogue import SQUASHES, STATISTICS
from normlab.cupy_kernels.dispatch import PLANNERS
from normlab.cupy_kernels.spec import PAIRS, STORAGE

ALL = frozenset(every_kernel())
SPEC = KernelSpec("norm_forward", "bf16", "f32", vec=8, per=4, team=128, statistic="layer", add=True)


def test_symbols_are_unique() -> None:
    assert len({spec.symbol for spec in every_kernel()}) == len(every_kernel()) == len(ALL)


@given(
    operation=st.sampled_from(sorted(PLANNERS)),
    pair=st.sampled_from(PAIRS),
    rows=st.integers(1, 5000),
    d=st.integers(1, 2**20),
    shift=st.integers(0, 3),
    options=st.fixed_dictionaries({name: st.booleans() for name in ("add", "gain", "bias", "one_gain")}),
    data=st.data(),
)
def test_no_plan_holds_a_kernel_that_is_not_in_the_catalogue(
    operation: str, pair: tuple[str, str], rows: int, d: int, shift: int, options: dict[str, bool], data: st.DataObject
) -> None:
    statistics = {"norm": STATISTICS, "squash": SQUASHES}.get(operation.split("_")[0], ("",))
    statistic = data.draw(st.sampled_from(statistics))
    options["add"] &= operation == "norm_forward"
    vec = max(1, 16 // STORAGE[pair[0]][1] >> shift)
    request = Request(operation, *pair, rows, d, vec, statistic, **options)
    for device in DEVICES.values():
        assert {launch.spec for launch in plan(request, device).launches} <= ALL


def test_the_dispatch_table_leaves_no_gap() -> None:
    for device in DEVICES.values():
        entries = dispatch_table(device)
        for entry, following in zip(entries, entries[1:], strict=False):
            assert following["from"] == (1 if entry["to"] == 0 else int(entry["to"]) + 1)
        assert entries[0]["from"] == 1 and entries[-1]["to"] == 0


def test_the_dispatch_table_says_what_is_chosen() -> None:
    table = dispatch_table(DEVICES["sm_90"])
    long = [entry for entry in table if entry["operation"] == "norm_forward" and entry["bytes"] == 2][-2]
    assert (long["from"], long["held_in"], long["threads"]) == (16385, "shared memory", 512)


def test_a_file_and_its_description(tmp_path: Path) -> None:
    (source,) = export(tmp_path / "kernels", [SPEC])
    assert source.name == f"{SPEC.symbol}.cu"
    said = json.loads(source.with_suffix(".json").read_text())
    assert said["symbol"] == SPEC.symbol and said["block"] == 128 and said["longest_row"] == 4096
    taken = re.search(rf"{SPEC.symbol}\((.*?)\)", source.read_text(), re.DOTALL)
    assert taken is not None
    assert [f"{each['type']} {each['name']}" for each in said["arguments"]] == taken[1].split(", ")
    assert sorted(path.suffix for path in source.parent.iterdir()) == [".cu", ".json"]


def test_shared_memory_is_described() -> None:
    held = KernelSpec("norm_forward", "bf16", "f32", vec=8, per=0, team=512, statistic="rms")
    assert description(held)["dynamic_shared_bytes"] == "2 * d" and description(held)["longest_row"] is None


@pytest.mark.needs("compiler")
def test_a_file_stands_alone(tmp_path: Path) -> None:
    chosen = {spec.function: spec for spec in every_kernel()}.values()
    for path in export(tmp_path, chosen):
        text = path.read_text()
        assert "#line" not in text and set(re.findall(r"#include <(\S+)>", text)) == {"cuda_bf16.h", "cuda_fp16.h"}
    assert build.module(text, (path.stem,), False).cuemu_dynamic()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NormlabError, match="kernels cannot be written to .*: choose another folder"):
        export(tmp_path / "file" / "kernels", [SPEC])
