"""Running claims' computations: each once a seed, in worker processes, kept in a folder."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pandas as pd

from normlab.claims.evidence import Evidence
from normlab.errors import RunError
from normlab.files import write_whole
from normlab.table import read_csv, to_csv_bytes

#: The part of a run's folder that holds what was computed.
FOLDER: Final = "evidence"
_FILE: Final = re.compile(r"(?P<name>.+)-v(?P<version>\d+)-(?P<seed>\d+)\.csv\.gz")
#: Fewer tasks than this do not pay for worker processes.
_WORTH_WORKERS: Final = 16

#: Called with how many computations are done, how many there are, and the last one's name.
Computed: TypeAlias = Callable[[int, int, str], None]


@dataclass(frozen=True)
class _Task:
    evidence: Evidence
    seed: int
    path: Path


def computations(
    evidence: Iterable[Evidence],
    seeds: Sequence[int],
    folder: Path,
    *,
    jobs: int | None = None,
    computed: Computed | None = None,
) -> Iterator[pd.DataFrame]:
    """Yield the table of every computation and seed; what the folder has is read.

    Raises:
        RunError: the folder cannot be written.
    """
    tasks = [
        _Task(each, seed, folder / f"{each.name}-v{each.version}-{seed}.csv.gz")
        for each in evidence
        for seed in (seeds[:1] if each.once else seeds)
    ]
    missing = [task for task in tasks if not task.path.exists()]
    for done, task in enumerate(_finished(missing, jobs), start=1):
        if computed is not None:
            computed(done, len(missing), task.evidence.name)
    for task in tasks:
        yield read_csv(task.path)


def newest(folder: Path) -> list[Path]:
    """Return the files of a folder of computed numbers, each computation and seed in its newest version alone."""
    found: dict[tuple[str, str], tuple[int, Path]] = {}
    for path in sorted(folder.glob("*.csv.gz")):
        match = _FILE.fullmatch(path.name)
        if match:
            key, version = (match["name"], match["seed"]), int(match["version"])
            found[key] = max(found.get(key, (0, path)), (version, path))
    return [path for _, path in found.values()]


def _finished(tasks: Sequence[_Task], jobs: int | None) -> Iterator[_Task]:
    """Run the tasks and yield each; in workers those that can be sent there."""
    workers = jobs or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else jobs or 1
    sent = [task for task in tasks if isinstance(task.evidence.measure, str) and not task.evidence.alone]
    if workers > 1 and len(sent) >= _WORTH_WORKERS:
        yield from _in_workers(sent, workers)
    for task in tasks:
        if not task.path.exists():
            yield _compute(task)


def _in_workers(tasks: Sequence[_Task], workers: int) -> Iterator[_Task]:
    from normlab.sweeps.pool import local_pool, refuse_unguarded

    refuse_unguarded()
    try:
        with local_pool(workers) as pool:
            yield from pool.map(_compute, tasks)
    except BrokenProcessPool:
        return  # what a lost worker left undone is computed here


def _compute(task: _Task) -> _Task:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # bits depend on it
    try:
        content = to_csv_bytes(task.evidence.rows(task.seed))
    finally:
        torch.set_num_threads(threads)
    try:
        write_whole(task.path, content)
    except OSError as error:
        raise RunError(
            f"{task.path} cannot be written ({error.strerror or error}): give another folder as out"
        ) from error
    return task
