"""Write docs/kernels.md from the dispatch tables and the costs that tools/kernel_costs.py recorded.

python tools/make_kernel_docs.py
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from normlab.cupy_kernels import DEVICES, KernelSpec, dispatch_table, every_kernel

ROOT: Final = Path(__file__).resolve().parents[1]
RECORD: Final = ROOT / "cupy_kernels/data/costs.json"
PAGE: Final = ROOT / "docs/kernels.md"
#: Of a multiprocessor: registers, and warps that may be resident (48 on sm_120).
REGISTERS: Final = 65536
WARPS: Final = {"sm_80": 64, "sm_90": 64, "sm_100": 64, "sm_120": 48}

INTRODUCTION: Final = """\
# CUDA kernels

The norms of the zoo as CUDA C (`cupy_kernels/cu`), for float32, float16 and bfloat16 storage with float32 arithmetic.
`normlab kernels list` shows which kernel serves which rows, `normlab kernels export DIR` writes each as a file that
stands alone, with a JSON that says how it is launched.

**What is checked, and where.** An emulator (`tests/cuemu`) runs the unchanged source on the CPU: against float64, under
three orders of threads with equal bits, with every access checked for bounds, alignment and races, and with bugs put in
that it must find. NVRTC compiles it for the architectures below. **Nothing here was run or timed on a GPU.**

This page is written by `tools/make_kernel_docs.py`.

## Bytes

What the emulator counts equals the least that is possible, in whole 32-byte sectors and 16-byte accesses where rows are
aligned; R rows of d elements of e bytes.

| kernel | reads | writes |
|---|---|---|
| forward, row in registers or shared memory | x once | y once, and statistics |
| the same with a residual | x and residual once | y and z once, and statistics |
| forward, split rows | x twice | y once, and statistics |
| backward, row in registers | x and dy once | dx once; sums of d floats a block for each of gain and bias |
| backward, split rows | x and dy three times | dx once; sums of d floats a chunk of rows |
| DyT and Derf | x once; backward dy too | y or dx once; backward sums of d floats a chunk of rows |
| moments, pairs of moments | each tensor once | 8 doubles a row |

LayerNorm reads the first element of each row besides: statistics are taken about it.
"""


def page() -> str:
    """Return the page."""
    record: dict[str, dict[str, list[int]]] = json.loads(RECORD.read_text(encoding="utf-8"))
    parts = [INTRODUCTION, "## Dispatch on sm_90, many aligned rows\n", _dispatch()]
    for architecture, costs in sorted(record.items()):
        spilling = sum(1 for _, stack, spill, _ in costs.values() if stack or spill)
        said = f"{len(costs)} kernels compiled; {spilling or 'none'} with spills or a stack. bfloat16, 16-byte vectors:"
        parts += [f"## Cost on {architecture}\n", f"{said}\n", _costs(costs, WARPS[architecture])]
    return "\n".join(parts)


def _dispatch() -> str:
    rows = (
        [str(entry[key]) for key in ("operation", "bytes")]
        + [f"{entry['from']} to {entry['to'] or 'any'}"]
        + [str(entry[key]) for key in ("function", "threads", "rows_a_block", "held_in")]
        for entry in dispatch_table(DEVICES["sm_90"])
    )
    return _table(("operation", "e", "d", "kernel", "threads a row", "rows a block", "row held in"), rows)


def _costs(costs: Mapping[str, list[int]], warps: int) -> str:
    chosen = [spec for spec in every_kernel() if (spec.dtype, spec.weight, spec.vec) in (("bf16", "bf16", 8),)]
    rows = (_cost(spec, costs[spec.symbol], warps) for spec in chosen if spec.symbol in costs)
    return _table(("kernel", "threads", "vectors a thread", "registers", "static shared bytes", "occupancy"), rows)


def _cost(spec: KernelSpec, cost: list[int], warps: int) -> list[str]:
    registers, _, _, shared = cost
    name = " ".join(filter(None, (spec.function, spec.statistic, "add" if spec.add else "")))
    held = str(spec.per) if spec.per else "shared memory"
    occupancy = "by d" if not spec.per else f"{resident(spec, registers, warps) / warps:.0%}"
    return [name, str(spec.threads), held, str(registers), str(shared), occupancy]


def resident(spec: KernelSpec, registers: int, warps: int) -> int:
    """Return how many warps registers leave resident on a multiprocessor: they are given out by 256 a warp."""
    own = spec.threads // 32
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256 * own)
    return min(by_registers, warps // own) * own


def _table(headings: Iterable[str], rows: Iterable[list[str]]) -> str:
    names = list(headings)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
