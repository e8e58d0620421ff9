"""Write docs/kernels.md from the dispatch tables and the costs that tools/kernel_costs.py recorded.

python tools/make_kernel_docs.py
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from normlab.cupy_kernels import DEVICES, KernelSpec, dispatch_table, every_kernel
from normlab.cupy_kernels.compile import Cost
from normlab.cupy_kernels.costs import recorded

ROOT: Final = Path(__file__).resolve().parents[1]
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
that it must find. NVRTC compiles it for the architectures below: all kernels for sm_90 whenever the tests run, of the
others those that hold most, and all of them whenever the record of this page is renewed. The launch path and the
operators are run with the emulator in CuPy's place. **Nothing here was run or timed on a GPU**: `python
tools/gpu_check.py` does both where there is one, and `normlab bench kernels` the second alone.

**Use.** On CUDA tensors the norms take the kernels by themselves (`backend="auto"`) where CuPy is installed
(`pip install 'normlab[cuda]'`), and torch where the kernels do not serve: other types, autocast, forward-mode
derivatives, transforms of `torch.func`. `backend="torch"` and `backend="cupy"` insist; `nl.kernels_info()` and
`normlab doctor` say what is used and why. `nl.norms.add_norm` fuses a residual sum with the norm after it. The
operators are `torch.ops.normlab.norm`, `add_norm`, `squash` (DyT, Derf), `moments`, `pair_moments`, `token_moments` and
`sequence_sums`; they compile whole for all shapes, and second derivatives are those of the formula in torch. A kernel
is compiled when it is first launched: run once before a CUDA graph is captured.

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
| moments, pairs of moments | each tensor once | 8 doubles a row, or 6 for the recorder |
| sums over sequences | x once, the norms of the tokens | 2 d doubles a chunk of at least 64 tokens |

LayerNorm reads the first element of each row besides: statistics are taken about it.
"""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION, "## Dispatch on sm_90, many aligned rows\n", _dispatch()]
    for architecture, record in sorted(recorded().items()):
        costs = record.costs
        spilling = sum(1 for cost in costs.values() if cost.stack_bytes or cost.spill_bytes)
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


def _costs(costs: Mapping[str, Cost], warps: int) -> str:
    chosen = [spec for spec in every_kernel() if (spec.dtype, spec.weight, spec.vec) in (("bf16", "bf16", 8),)]
    rows = (_cost(spec, costs[spec.symbol], warps) for spec in chosen if spec.symbol in costs)
    return _table(("kernel", "threads", "vectors a thread", "registers", "static shared bytes", "occupancy"), rows)


def _cost(spec: KernelSpec, cost: Cost, warps: int) -> list[str]:
    name = " ".join(filter(None, (spec.function, spec.statistic, "add" if spec.add else "")))
    held = str(spec.per) if spec.per else "shared memory"
    occupancy = "by d" if not spec.per else f"{resident(spec, cost.registers, warps) / warps:.0%}"
    return [name, str(spec.threads), held, str(cost.registers), str(cost.shared_bytes), occupancy]


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
