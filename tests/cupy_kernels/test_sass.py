"""Instructions for one element, from listings that were written by hand and whose counts are known."""

import pytest

from normlab import NormlabError
from normlab.cupy_kernels import KernelSpec
from normlab.cupy_kernels.paths import Block, trips
from normlab.cupy_kernels.sass import KINDS, Work, blocks, work

APPLY = KernelSpec("norm_apply", "bf16", "bf16", vec=8, per=1, team=256, statistic="rms")
HELD = KernelSpec("norm_forward", "bf16", "bf16", vec=8, per=0, team=512, statistic="rms")
LOOP = """\
 LDC R1, c[0x0][0x28]
.L_x_0:
 LDG.E.128.CONSTANT R4, desc[UR8][R2.64]
 @!P1 BRA `(.L_x_1)
 LDG.E.128.CONSTANT R8, desc[UR8][R6.64]
 FMUL.FTZ R4, R4, R8
 FMUL.FTZ R5, R5, R9
.L_x_1:
 BSSY B0, `(.L_x_2)
 @P0 BRA P2, `(.L_x_2)
 CALL.REL.NOINC `($__internal_0_$slow)
.L_x_2:
 MUFU.RCP R11, R11
 SHFL.BFLY PT, R12, R13, 0x4, 0x1f
 STG.E.EF.128 desc[UR4][R2.64], R4
 IADD3 R2, R2, R3, RZ
 @P3 BRA `(.L_x_0)
 EXIT
.L_x_9:
 BRA `(.L_x_9)
$__internal_0_$slow:
 FADD R1, R1, R2
 NOP
 RET.REL.NODEC R2 `(symbol)
"""


def listing(symbol: str, text: str) -> str:
    lines = [line if line[0] in ".$" else f"        /*0a10*/ {line} ;" for line in text.splitlines()]
    return f"\t.section\t.text.{symbol}\n.text.{symbol}:\n" + "\n".join(lines)


def counted(spec: KernelSpec, text: str) -> dict[str, int]:
    found = work(listing(spec.symbol, text), [spec])[spec.symbol]
    return {"elements": found.elements, **dict(zip(KINDS, found.counts, strict=True))}


def test_one_trip_with_gain_and_without_the_slow_path() -> None:
    of = {"global": 3, "shared": 0, "arithmetic": 2, "special": 1, "exchange": 1, "control": 4, "other": 1}
    assert counted(APPLY, LOOP) == {"elements": 8, **of}


def test_a_subroutine_that_cannot_be_avoided_counts() -> None:
    assert counted(APPLY, LOOP.replace(" @P0 BRA P2, `(.L_x_2)\n", ""))["control"] == 3 + 1 + 3


def test_a_loop_that_was_unrolled_serves_more_elements() -> None:
    store = " STG.E.EF.128 desc[UR4][R2.64], R4\n"
    load = " LDG.E.128.CONSTANT R4, desc[UR8][R2.64]\n"
    assert counted(APPLY, LOOP.replace(store, store * 2).replace(load, load * 2))["elements"] == 16


def test_a_row_in_shared_memory_is_gone_over_twice() -> None:
    text = """\
.L_x_0:
 LDG.E.128.CONSTANT R4, desc[UR8][R2.64]
 STS.128 [R1], R4
 @P0 BRA `(.L_x_0)
.L_x_1:
 LDS.128 R4, [R1]
 FMUL R4, R4, R5
 STG.E.EF.128 desc[UR4][R2.64], R4
 LDS.128 R4, [R1]
 STG.E.EF.128 desc[UR4][R2.64], R4
 @P0 BRA `(.L_x_1)
 EXIT
"""
    assert counted(HELD, text) == {
        **{"elements": 16, "global": 4, "shared": 4, "arithmetic": 1},
        **{"special": 0, "exchange": 0, "control": 3, "other": 0},
    }


def test_narrower_accesses_than_promised_are_refused() -> None:
    with pytest.raises(NormlabError, match="norm_apply_rms.* does not move its row by 16 bytes at once"):
        counted(APPLY, LOOP.replace("STG.E.EF.128", "STG.E.EF.64"))


def test_local_memory_is_refused() -> None:
    with pytest.raises(NormlabError, match="accesses local memory 1 times: nothing may spill"):
        counted(APPLY, LOOP.replace("IADD3 R2, R2, R3, RZ", "STL [R1], R2"))


def test_blocks_end_at_branches_and_labels() -> None:
    found = blocks(listing("symbol", LOOP))
    assert [len(each.instructions) for each in found] == [1, 2, 3, 2, 1, 5, 1, 1, 0]
    assert [list(each.successors) for each in found] == [[1], [3, 2], [3], [5, 4], [5], [1, 6], [], [7], []]


def test_an_inner_loop_hides_the_outer_one() -> None:
    graph = [Block(("a",), (1,)), Block(("b",), (2,)), Block(("c",), (2, 3)), Block(("d",), (1, 4)), Block(("e",), ())]
    assert trips(graph, lambda _: (1,)) == [["c"]]


def test_the_cheapest_way_is_taken() -> None:
    graph = [Block("a", (1, 2)), Block("bb", (3,)), Block("c", (3,)), Block("d", (0, 4)), Block("e", ())]
    assert trips(graph, lambda _: (1,)) == [["a", "c", "d"]]
    assert trips(graph, lambda each: (-(each == "b"),)) == [["a", "b", "b", "d"]]


def test_numbers_for_one_element() -> None:
    found = Work(8, (2, 0, 12, 1, 0, 1, 8))
    assert found.an_element() == 3.0 and found.an_element("arithmetic", "global") == 1.75
