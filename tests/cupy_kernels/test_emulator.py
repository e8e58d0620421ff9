"""The emulator itself: what it computes, and what it reports of kernels that are wrong in one way each."""

import os
import re
import subprocess
import sys
from pathlib import Path

import cuemu
import pytest
import torch
from cuemu import build
from cuemu.harness import SCHEDULES, Call, Emulator, KernelFault, Outcome
from torch import Tensor

from normlab.cupy_kernels import Parameter

pytestmark = pytest.mark.needs("compiler")

PROBES = (Path(next(iter(cuemu.__path__))) / "probes.cu").read_text()
NAMES = tuple(re.findall(r"^PROBE\((\w+)\)", PROBES, re.MULTILINE)) + ("widened", "rounded")
PARAMETERS = (
    Parameter("in", "const float*", "input", ""),
    Parameter("out", "float*", "output", ""),
    Parameter("n", "int", "scalar", ""),
)


def probe(name: str, emulator: Emulator, n: int = 64, *, grid: int = 1, shared: int = 0, inputs: int = 64) -> Outcome:
    """Run the kernel ``name`` on 0, 1, 2, ... by blocks of 64 threads."""
    library = build.module(f'#line 1 "probes.cu"\n{PROBES}', NAMES, emulator.checked)
    values = {"in": torch.arange(float(inputs)), "out": torch.full((64,), torch.nan), "n": n}
    return emulator.execute(library, Call(name, PARAMETERS, 64, grid, shared), values)


def out(name: str, n: int = 64, checked: bool = True) -> Tensor:
    return probe(name, Emulator(checked=checked), n)["out"]


@pytest.mark.parametrize("width", [8, 16, 32])
def test_shuffles_stay_in_their_segment(width: int) -> None:
    given = torch.arange(64.0).view(-1, width)
    assert out("butterfly", width).view(-1, width).equal(given.sum(1, keepdim=True).expand_as(given))
    kept = torch.cat([given[:, 3:], given[:, -3:]], 1)
    assert out("down", width).view(-1, width).equal(kept)
    assert out("broadcast", width).view(-1, width).equal(given[:, 5:6].expand_as(given))


def test_votes() -> None:
    first, second = out("votes").view(2, 32)
    assert first.equal(torch.full((32,), float(0xFFFE + 65536)))
    assert second.equal(torch.full((32,), float(0xFFFF + 65536 + 131072)))


def test_half_warps_vote_apart() -> None:
    assert out("half_warps").equal(torch.arange(64.0).view(-1, 2).flip(1).flatten())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_barrier_orders_shared_memory(schedule: str) -> None:
    for checked in (True, False):
        assert probe("reversed", Emulator(schedule, checked=checked))["out"].equal(torch.arange(63.0, -1, -1))


def test_a_warp_barrier_orders_a_warp() -> None:
    assert out("syncwarp_orders_a_warp").equal(torch.arange(64.0).view(-1, 2).flip(1).flatten())


def test_schedules_differ() -> None:
    results = [probe("unordered", Emulator(schedule))["out"] for schedule in SCHEDULES]
    assert not results[0].nan_to_num(-1).equal(results[1].nan_to_num(-1))


REPORTS = {
    "unordered": r"uninitialised shared memory|shared memory race",
    "shuffle_orders_nothing": r"shared memory race: .*read of 4 bytes at probes.cu:\d+ .* at probes.cu:\d+",
    "write_after_read": r"shared memory race",
    "uninitialised": r"uninitialised shared memory: read of 4 bytes at probes.cu:\d+ by thread 0",
    "beyond_dynamic": r"out-of-bounds write of 4 bytes at probes.cu:\d+",
    "reads_beyond": r"out-of-bounds read of 4 bytes at probes.cu:\d+ by thread 63 of block 0",
    "writes_beyond": r"out-of-bounds write",
    "writes_input": r"read-only input: write",
    "misaligned": r"misaligned read of 16 bytes at probes.cu:\d+",
    "wild": r"out-of-bounds read",
}


@pytest.mark.parametrize(("name", "report"), REPORTS.items(), ids=REPORTS)
def test_the_checked_build_reports(name: str, report: str) -> None:
    with pytest.raises(KernelFault, match=report):
        probe(name, Emulator(checked=True), 64 if name != "wild" else 9)


def test_blocks_that_write_to_one_place() -> None:
    with pytest.raises(KernelFault, match=r"global memory race: .*thread 0 of block 1 and thread 0 of block 0"):
        probe("blocks_race", Emulator(checked=True), grid=2)


COLLECTIVES = {
    "divergent": r"barrier divergence: thread \d+ of block 0 waits at \S+:\d+, thread \d+",
    "exits_early": r"barrier divergence: .* exited|barrier divergence: .* exits",
    "deadlocked": r"deadlock: thread 0 of block 0 waits for its warp at probes.cu:\d+",
    "lane_exited": r"lane 31 of the mask has exited|deadlock",
    "outside_mask": r"reads lane 16, which is not in the mask 0x0000ffff",
    "not_in_mask": r"the mask 0x0000ffff does not name the calling lane",
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("name", "report"), COLLECTIVES.items(), ids=COLLECTIVES)
def test_collectives_that_do_not_meet(name: str, report: str, schedule: str) -> None:
    with pytest.raises(KernelFault, match=report):
        probe(name, Emulator(schedule))


@pytest.mark.parametrize(("name", "report"), [("writes_beyond", "around out"), ("writes_input", "in was written")])
def test_canaries_in_the_plain_build(name: str, report: str) -> None:
    with pytest.raises(KernelFault, match=report):
        probe(name, Emulator())


def test_a_wild_pointer_leaves_python_alive() -> None:
    with pytest.raises(KernelFault, match=r"memory fault at address 0x\w+ by thread 0 of block 0"):
        probe("wild", Emulator(), 9)
    assert out("reversed").equal(torch.arange(63.0, -1, -1))


def test_shared_memory_is_poisoned() -> None:
    assert probe("poisoned", Emulator(), shared=256)["out"].isnan().all()


def test_launches_that_no_gpu_would_take() -> None:
    library = build.module(f'#line 1 "probes.cu"\n{PROBES}', NAMES, False)
    values = {"in": torch.zeros(64), "out": torch.zeros(64), "n": 1}
    for call, report in (
        (Call("down", PARAMETERS, 48), "48 threads, which is no multiple of 32"),
        (Call("down", PARAMETERS, 2048), "2048 threads"),
        (Call("down", PARAMETERS, 64, grid=0), "an empty grid"),
        (Call("down", PARAMETERS, 64, shared_bytes=300_000), "300000 bytes of dynamic shared memory"),
    ):
        with pytest.raises(KernelFault, match=report):
            Emulator().execute(library, call, values)


def test_subnormal_numbers_are_flushed() -> None:
    library = build.module(f'#line 1 "probes.cu"\n{PROBES}', NAMES, False)
    values = {"in": torch.full((64,), 1e-39), "out": torch.full((64,), torch.nan), "n": 0}
    done = Emulator().execute(library, Call("flushed", PARAMETERS, 64), values)
    assert done["out"].abs().max() == 0
    assert float(torch.tensor(1e-39) * 0.5) != 0  # only inside of kernels


def test_traffic_of_coalesced_and_strided_reads() -> None:
    counted = Emulator(checked=True, counting=True)
    dense, strided = (probe("strided", counted, n, inputs=64 * n).traffic["in"] for n in (1, 8))
    assert (dense.read_bytes, dense.read_sectors, dense.read_instructions) == (256, 8, 2)
    assert (strided.read_bytes, strided.read_sectors, strided.fewest_read_sectors) == (256, 64, 8)


def convert(name: str, arrays: dict[str, Tensor]) -> Outcome:
    kinds = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
    count = len(next(iter(arrays.values())))
    taken = tuple(
        Parameter(key, f"{'const ' if not array.isnan().all() else ''}{kinds[array.dtype]}*", "", "")
        for key, array in arrays.items()
    )
    library = build.module(f'#line 1 "probes.cu"\n{PROBES}', NAMES, False)
    return Emulator().execute(library, Call(name, taken, 256, count // 256), arrays)


def test_every_half_is_widened_as_by_torch() -> None:
    bits = torch.arange(2**16).to(torch.int32).to(torch.uint16)
    half, brain, empty = bits.view(torch.float16), bits.view(torch.bfloat16), torch.full((2**16,), torch.nan)
    done = convert("widened", {"half": half, "brain": brain, "of_half": empty, "of_brain": empty})
    for wide, narrow in ((done["of_half"], half), (done["of_brain"], brain)):
        assert wide.isnan().equal(narrow.isnan())
        assert wide.nan_to_num(0.0).equal(narrow.float().nan_to_num(0.0))


def test_rounding_is_torch_s() -> None:
    noise = torch.Generator().manual_seed(0)
    random = torch.randint(-(2**31), 2**31, (2**16 - 1024,), generator=noise).to(torch.int32).view(torch.float32)
    ties = torch.arange(1024).mul(2).add(1).to(torch.float32) * 2.0**-26  # halves of subnormal half steps
    given = torch.cat([random, ties])
    half, brain = (torch.full((2**16,), torch.nan, dtype=dtype) for dtype in (torch.float16, torch.bfloat16))
    done = convert("rounded", {"in": given, "half": half, "brain": brain})
    numbers = ~given.isnan()
    assert done["half"][numbers].equal(given.half()[numbers])
    assert done["brain"][numbers].equal(given.bfloat16()[numbers])


def test_fibers_without_assembly() -> None:
    """On other machines than x86-64 fibers are switched by ucontext: the same tests, in a process of its own."""
    chosen = ["-k", "orders or divergent or alive", str(Path(__file__))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", *chosen]
    done = subprocess.run(command, env={**os.environ, "CUEMU_PORTABLE": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
