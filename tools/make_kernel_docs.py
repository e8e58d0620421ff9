"""Write docs/kernels.md from the dispatch tables and the costs that tools/kernel_costs.py recorded.

python tools/make_kernel_docs.py
"""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from normlab.cupy_kernels import DEVICES, KernelSpec, dispatch_table, every_kernel
from normlab.cupy_kernels.accesses import promise, width
from normlab.cupy_kernels.compile import Cost
from normlab.cupy_kernels.costs import Record, recorded
from normlab.cupy_kernels.sass import KINDS

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/kernels.md"
REGISTERS: Final = 65536  # of a multiprocessor
RESERVED: Final = 1024  # bytes of shared memory that a block takes besides its own


@dataclass(frozen=True)
class Multiprocessor:
    """What may be resident on one: warps, blocks, and bytes of shared memory."""

    warps: int
    blocks: int
    shared_bytes: int


MULTIPROCESSORS: Final = {
    "sm_80": Multiprocessor(64, 32, 164 * 1024),
    "sm_90": Multiprocessor(64, 32, 228 * 1024),
    "sm_100": Multiprocessor(64, 32, 228 * 1024),
    "sm_120": Multiprocessor(48, 24, 100 * 1024),
}

INTRODUCTION: Final = """\
# CUDA kernels

The norms of the zoo as CUDA C (`cupy_kernels/cu`), for float32, float16 and bfloat16 storage with float32 arithmetic.
`normlab kernels list` shows which kernel serves which rows, `normlab kernels export DIR` writes each as a file that
stands alone, with a JSON that says how it is launched.

**What is checked, and where.** An emulator (`tests/cuemu`) runs the unchanged source on the CPU: against float64, under
three orders of threads with equal bits, with every access checked for bounds, alignment and races, and with bugs put in
that it must find. NVRTC compiles every kernel for every architecture below whenever the tests run: none may spill, use
a stack, take over eight registers more than is recorded here, or move a row by other widths than it promises.
The launch path and the operators are run with the emulator in CuPy's place. **Nothing here was run or timed on a
GPU**: `python tools/gpu_check.py` does both where there is one, and `normlab bench kernels` the second alone.

**Use.** On CUDA tensors the norms take the kernels by themselves (`backend="auto"`) where CuPy is installed
(`pip install 'normlab[cuda]'`), and torch where the kernels do not serve: other types, autocast, forward-mode
derivatives, transforms of `torch.func`. `backend="torch"` and `backend="cupy"` insist; `nl.kernels_info()` and
`normlab doctor` say what is used and why. `nl.norms.add_norm` fuses a residual sum with the norm after it. The
operators are `torch.ops.normlab.norm`, `add_norm`, `squash` (DyT, Derf), `moments`, `pair_moments`, `token_moments` and
`sequence_sums`; they compile whole for all shapes, and second derivatives are those of the formula in torch. A kernel
is compiled when it is first launched: run once before a CUDA graph is captured.

L2Norm and ScaleNorm are served by RMSNorm's kernels, which take `by_length`. This page is written by
`tools/make_kernel_docs.py` from what `tools/kernel_costs.py` compiled and disassembled; that one needs nvdisasm, of the
CUDA toolkit or by `pip install nvidia-cuda-nvdisasm`.

## Bytes

What the emulator counts equals the least that is possible, in whole 32-byte sectors and 16-byte accesses where rows are
aligned; R rows of d elements of e bytes. Two exceptions touch each sector twice, in accesses that follow one another:
float32 gain and bias beside 16-bit rows, and a thread's share of their gradients' sums.

| kernel | reads | writes |
|---|---|---|
| forward, row in registers or shared memory | x once | y once, and statistics |
| the same with a residual | x and residual once | y and z once, and statistics |
| forward, split rows | x twice | y once, and statistics |
| backward, row in registers | x and dy once | dx once; sums of d floats a block for each of gain and bias |
| backward, split rows | x and dy three times | dx once; sums of d floats a chunk of rows |
| DyT and Derf | x once; backward dy too | y or dx once; backward sums of d floats a chunk of rows |
| moments, pairs of moments | each tensor once | 8 doubles a row, or 6 for the recorder |
| sums over sequences | x once, the norms of the tokens | 2 d doubles a chunk of at least 64 tokens |

LayerNorm reads the first element of each row besides: statistics are taken about it.
"""

COSTS: Final = """\
## What is counted below

Registers, shared memory and occupancy are those of the binary that NVRTC makes; a row in shared memory fills it by its
length. Instructions are those that nvdisasm lists for the loop over rows (or over the columns of a long row), by the
way through it that moves most bytes, of those the one that computes most, of those the shortest, for each element that
a thread serves on it: with gain and bias (and the gradient of a residual), without rounding before the gain, by no slow
path of a division. What is done once a row is in it, so short vectors a thread cost more. A row in shared memory takes
three such loops, or two, which are added. A kernel that goes down columns, or over slices, is counted by its loop
alone; `moments_total` and `column_sum` by a row and by a number. No kernel accesses local memory.

`global` and `shared` are accesses to memory, `arithmetic` is of float32 and float64, `special` reciprocals, roots and
exponentials, `exchange` shuffles and barriers, `control` branches and calls, `other` addresses, moves, comparisons and
conversions. A 16-byte access of eight elements counts 0.12.
"""
#: What an H100 (SXM) does in a second: instructions of its threads, and bytes of device memory.
ISSUED: Final = 132 * 4 * 32 * 1.7e9
MOVED: Final = 3.35e12


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION, "## Dispatch on sm_90, many aligned rows\n", _dispatch(), COSTS, _bound(recorded()["sm_90"])]
    for architecture, record in sorted(recorded().items()):
        spilling = sum(1 for cost in record.costs.values() if cost.stack_bytes or cost.spill_bytes)
        said = f"{len(record.costs)} kernels compiled; {spilling or 'none'} with spills or a stack."
        parts += [f"## Cost on {architecture}\n", f"{said} bfloat16, 16-byte vectors:\n", _costs(record, architecture)]
    return "\n".join(parts)


def _dispatch() -> str:
    rows = (
        [str(entry[key]) for key in ("operation", "bytes")]
        + [f"{entry['from']} to {entry['to'] or 'any'}"]
        + [str(entry[key]) for key in ("function", "threads", "rows_a_block", "held_in")]
        for entry in dispatch_table(DEVICES["sm_90"])
    )
    return _table(("operation", "e", "d", "kernel", "threads a row", "rows a block", "row held in"), rows)


def _bound(record: Record) -> str:
    """Say which kernels need longer for their instructions than for their bytes."""
    slow = dict[str, float]()
    for spec in _shown():
        share = record.works[spec.symbol].an_element() / ISSUED / (moved(spec) / MOVED)
        if share > 1:
            slow[_name(spec)] = max(share, slow.get(_name(spec), 0.0))
    factors = "; ".join(f"{name} {share:.1f}" for name, share in sorted(slow.items()))
    said = (
        f"An H100 (132 multiprocessors, four warps a clock, 1.7 GHz; 3.35 TB/s) issues {ISSUED * 4 / MOVED:.0f} "
        "instructions in the time of 4 bytes. By that these kernels are held up by instructions, by the factor named, "
        f"and the others below by bytes: {factors}."
    )
    return textwrap.fill(said, 120) + "\n"


def moved(spec: KernelSpec) -> float:
    """Return the bytes of rows that are moved for an element."""
    made = promise(spec)
    return (made.loads + made.stores) * width(spec) / made.elements


def _shown() -> list[KernelSpec]:
    return [spec for spec in every_kernel() if (spec.dtype, spec.weight, spec.vec) == ("bf16", "bf16", 8)]


def _name(spec: KernelSpec) -> str:
    return " ".join(filter(None, (spec.function, spec.statistic, "add" if spec.add else "")))


def _costs(record: Record, architecture: str) -> str:
    rows = (_cost(spec, record, architecture) for spec in _shown() if spec.symbol in record.costs)
    headings = ("kernel", "threads a block", "a row", "vectors a thread", "registers", "shared bytes", "occupancy")
    return _table((*headings, "instructions an element", *KINDS), rows)


def _cost(spec: KernelSpec, record: Record, architecture: str) -> list[str]:
    cost, work, on = record.costs[spec.symbol], record.works[spec.symbol], MULTIPROCESSORS[architecture]
    held = str(spec.per) if spec.per else "shared memory"
    occupancy = "by d" if not spec.per else f"{resident(spec, cost, on) / on.warps:.0%}"
    sizes = [
        _name(spec),
        str(spec.threads),
        str(spec.team),
        held,
        str(cost.registers),
        str(cost.shared_bytes),
        occupancy,
    ]
    return [*sizes, f"{work.an_element():.1f}", *(f"{work.an_element(kind):.2g}" for kind in KINDS)]


def resident(spec: KernelSpec, cost: Cost, on: Multiprocessor) -> int:
    """Return how many warps are resident on a multiprocessor: registers are given out by 256 a warp."""
    own = spec.threads // 32
    by_registers = REGISTERS // (-(-cost.registers * 32 // 256) * 256 * own)
    by_shared = on.shared_bytes // (cost.shared_bytes + RESERVED)
    return min(by_registers, by_shared, on.warps // own, on.blocks) * own


def _table(headings: Iterable[str], rows: Iterable[list[str]]) -> str:
    names = list(headings)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
