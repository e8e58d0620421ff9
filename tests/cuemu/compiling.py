"""Every kernel by NVRTC for every architecture, in processes of their own, while other tests run."""

import multiprocessing
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

from normlab.cupy_kernels import KernelSpec, every_kernel
from normlab.cupy_kernels.accesses import ptx_accesses
from normlab.cupy_kernels.compile import Cost, compiled

BATCH = 40  # kernels a module: the source is parsed once for them


@dataclass(frozen=True)
class Report:
    """Of a kernel its cost, and how often its PTX loads (``ld``) and streams out (``st``) each number of bytes."""

    cost: Cost
    accesses: Mapping[str, Counter[int]]


def reports(specs: Sequence[KernelSpec], architecture: str) -> dict[str, Report]:
    """Compile ``specs`` for ``architecture`` and return a report of each, by symbol."""
    made = compiled(specs, architecture)
    return {symbol: Report(cost, ptx_accesses(made.ptx, symbol)) for symbol, cost in made.costs.items()}


@cache
def pool() -> ProcessPoolExecutor:
    """Return the processes that compile."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(os.cpu_count(), context, os.nice, (10,))  # other tests go before


@cache
def started(architecture: str) -> list[Future[dict[str, Report]]]:
    """Start to compile all kernels for ``architecture``, and return what will be their reports."""
    specs = every_kernel()
    batches = (specs[start : start + BATCH] for start in range(0, len(specs), BATCH))
    return [pool().submit(reports, batch, architecture) for batch in batches]


def every_report(architecture: str) -> dict[str, Report]:
    """Return the reports of all kernels for ``architecture``."""
    return {symbol: report for batch in started(architecture) for symbol, report in batch.result().items()}
