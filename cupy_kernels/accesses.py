"""What a kernel promises to move at once, and what its PTX says."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from normlab.cupy_kernels.spec import STORAGE, KernelSpec

_ACCESS: Final = re.compile(r"\b(ld|st)\.global((?:\.\w+)*?)(?:\.v(\d))?\.[a-z](\d+)\s")


@dataclass(frozen=True)
class Promise:
    """What a thread moves on one trip of the source's loop over a row, or over rows.

    Attributes:
        elements: of the row.
        loads: of vectors of the row's type, each by one instruction.
        stores: of the same.
        beside: bytes that are loaded besides.
    """

    elements: int
    loads: int
    stores: int
    beside: int = 0


def width(spec: KernelSpec) -> int:
    """Return the bytes of an access to a row: 16 where a vector is that wide."""
    return spec.vec * spec.itemsize


def promise(spec: KernelSpec) -> Promise:
    """Return what ``spec`` promises; gain and bias and a residual gradient are there."""
    vec, add = spec.vec, int(spec.add)
    held = max(spec.per, 1)
    layer = spec.statistic == "layer"
    of = {
        "norm_forward": Promise(held * vec, held * (1 + add), held * (1 + add)),
        "norm_moments": Promise(held * vec, held * (1 + add), held * add),
        "norm_apply": Promise(vec, 1, 1),
        "norm_backward": Promise(held * vec, 3 * held, held),
        "norm_backward_sums": Promise(vec, 2, 0, vec * STORAGE[spec.weight][1]),
        "norm_backward_apply": Promise(vec, 3, 1),
        "norm_backward_columns": Promise(vec, 2, 0, 4 + (4 + spec.itemsize) * layer),
        "squash_forward": Promise(vec, 1, 1),
        "squash_backward": Promise(vec, 2, 1),
        "tensor_moments": Promise(8, 8 // vec, 0),
        "pair_moments": Promise(8, 3 * 8 // vec, 0),
        "sequence_sums": Promise(vec, 1, 0, 8),
        "moments_total": Promise(1, 0, 0, 64),
        "column_sum": Promise(1, 1, 0),
    }
    return of[spec.function]


def ptx_accesses(ptx: str, symbol: str) -> dict[str, Counter[int]]:
    """Return how often the kernel ``symbol`` loads (``ld``), and streams out (``st``), each number of bytes at once."""
    body = ptx.split(f".entry {symbol}(")[1].split(".entry ")[0]
    found = {"ld": Counter[int](), "st": Counter[int]()}
    for what, how, vectors, bits in _ACCESS.findall(body):
        if ".nc" in how or ".cs" in how:
            found[what][int(vectors or 1) * int(bits) // 8] += 1
    return found
