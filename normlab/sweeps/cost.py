"""What a cell costs, estimated from its spec: seconds decide the order, bytes the number of workers."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from normlab.spec import ModelSpec
from normlab.sweeps.cells import Cell

#: A worker that has imported everything and run nothing.
WORKER_BYTES: Final = 300 * 2**20

#: Rows of a sub-layer, and the text that is made of them.
_TABLE_BYTES: Final = 100 * 2**10

_ITEM_BYTES: Final = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}

# Fitted on one core to recorded steps of 12 to 1000 blocks of width 32 to 384: a sub-layer costs this much
# whatever its width (small kernels, hooks, rows of the table), and this much an entry of its output.
_SECONDS_A_SUBLAYER: Final = 3e-3
_SECONDS_AN_ENTRY: Final = 7e-8
_OPERATIONS_A_SECOND: Final = 1e11


def parameters(spec: ModelSpec) -> int:
    """Return the number of entries of the model's matrices; norms and biases are left out."""
    embeddings = len(spec.stacks) + (not spec.tie_embeddings)
    return embeddings * spec.vocab * spec.width + sum(
        spec.stacks[stack] * fan_in * fan_out
        for stack in spec.stacks
        for sublayer in spec.sublayers(stack)
        for fan_in, fan_out in spec.matrices(sublayer).values()
    )


def seconds(cell: Cell) -> float:
    """Estimate one recorded step on one core.

    Six operations a weight and token, 12 d n a token for attention (width d, n tokens in a sequence), and
    for each sub-layer a constant and a constant an entry.
    """
    spec, tokens = cell.spec, cell.data.batch * cell.data.tokens
    attending = sum(depth for stack, depth in spec.stacks.items() if "attn" in spec.sublayers(stack))
    operations = 6 * tokens * parameters(spec) + 12 * attending * tokens * cell.data.tokens * spec.width
    each = _SECONDS_A_SUBLAYER + _SECONDS_AN_ENTRY * tokens * spec.width
    return _sublayers(spec) * each + operations / _OPERATIONS_A_SECOND


def bytes_needed(cell: Cell) -> int:
    """Estimate the peak memory of a worker that runs ``cell``, rather too high than too low.

    An idle worker; an item's size times weights and gradients (2P for P weights), what the backward pass
    keeps for each token (10 d + 3 m a block, with width d and hidden width m, and 3 V for the logits) and
    one block's attention scores (3 h n a token, with h heads and n tokens in a sequence); and the rows of
    the table. The fused attention keeps no scores for the backward pass.
    """
    spec, data = cell.spec, cell.data
    blocks = sum(spec.stacks.values())
    kept = blocks * (10 * spec.width + 3 * spec.hidden_width) + 3 * spec.vocab + 3 * spec.heads * data.tokens
    items = 2 * parameters(spec) + data.batch * data.tokens * kept
    return WORKER_BYTES + items * _ITEM_BYTES[cell.dtype] + _sublayers(spec) * _TABLE_BYTES


def _sublayers(spec: ModelSpec) -> int:
    return sum(depth * len(spec.sublayers(stack)) for stack, depth in spec.stacks.items())


def workers(cells: Iterable[Cell]) -> int:
    """Return how many cells can run at once: at most one a core, and as many as the largest fit in memory."""
    largest, count = 0, 0
    for cell in cells:
        largest, count = max(largest, bytes_needed(cell)), count + 1
    if not count:
        return 1
    return max(1, min(count, available_cores(), available_bytes() // largest))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_bytes() -> int:
    """Return the memory that is free, within the limit of the control group where there is one."""
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    for limit, used, statistics in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        with contextlib.suppress(OSError, ValueError):
            allowed = int((group / limit).read_text())
            cached = _inactive_file((group / statistics).read_text())
            free = min(free, allowed - int((group / used).read_text()) + cached)
    return max(free, 0)


def _inactive_file(statistics: str) -> int:
    """What the group holds of the file cache and would give back."""
    return next((int(line.split()[1]) for line in statistics.splitlines() if line.startswith("inactive_file ")), 0)
