"""What a sweep costs beyond its cells: wall time ÷ (build and recorded step of its cells ÷ workers).

The step of each spec is timed in this process with one thread (median of several), the sweep in worker
processes, starting them included. Run it on a machine that does nothing else::

    python tools/bench_sweep.py --seeds 24

``cpu_ratio`` compares processor time in place of wall time: it holds on a busy machine too, and says
nothing of cores that stand idle.
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

import normlab as nl
from normlab.sweeps import Progress, cost
from normlab.sweeps.cells import Cell


@dataclass(frozen=True)
class Spent:
    """Time that something took.

    Attributes:
        wall: seconds on the clock.
        cpu: seconds of processors, those of child processes that have ended included.
    """

    wall: float
    cpu: float


def timed(call: Callable[[], object]) -> Spent:
    """Return what ``call`` takes."""
    wall, cpu = time.perf_counter(), _cpu_seconds()
    call()
    return Spent(time.perf_counter() - wall, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def step(cell: Cell) -> None:
    """Build the cell's model, draw its batch, run one recorded step and read the table."""
    model = nl.build(cell.spec, seed=cell.model_seed)
    batch = cell.data.draw(cell.data_seed)
    with nl.record(model) as recorder:
        model.loss(*batch).backward()
    recorder.table()


def sweep(specs: Sequence[nl.ModelSpec], seeds: range, data: nl.data.Text, workers: int) -> tuple[Spent, float]:
    """Return what a whole sweep takes, and the seconds until its first cell was finished."""
    first: list[float] = []

    def watch(progress: Progress) -> None:
        first.append(progress.elapsed_seconds)

    with tempfile.TemporaryDirectory() as folder:
        spent = timed(lambda: nl.sweep(specs, seeds=seeds, data=data, out=folder, jobs=workers, progress=watch))
    return spent, first[0]


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    specs = nl.grid(placement=["pre", "post"], depth=options.depth, width=options.width)
    seeds, data = range(options.seeds), nl.data.Text(4, 64)
    cells = [Cell(spec, seed, data) for spec in specs for seed in seeds]
    workers = cost.workers(cells)
    step(cells[0])
    steps: list[Spent] = []
    sweeps: list[tuple[Spent, float]] = []
    for repeat in range(options.repeats):
        steps += [timed(partial(step, Cell(spec, repeat, data))) for spec in specs for _ in range(3)]
        sweeps.append(sweep(specs, seeds, data, workers))
    wall, cpu = (statistics.median(getattr(spent, kind) for spent in steps) for kind in ("wall", "cpu"))
    whole, used = (statistics.median(getattr(spent, kind) for spent, _ in sweeps) for kind in ("wall", "cpu"))
    found = {
        "cells": len(cells),
        "workers": workers,
        "step_seconds": round(wall, 3),
        "sweep_seconds": round(whole, 2),
        "first_cell_seconds": round(statistics.median(first for _, first in sweeps), 2),
        "ratio": round(whole / (wall * len(cells) / workers), 3),
        "cpu_ratio": round(used / (cpu * len(cells)), 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
