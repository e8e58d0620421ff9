"""sweep: every cell of a grid, measured, kept, and joined to one table."""

import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from normlab import table
from normlab.data import Source, Text
from normlab.errors import RunError, SpecError, unknown_name
from normlab.spec import ModelSpec
from normlab.sweeps import cost, engine, results, store
from normlab.sweeps.cells import DTYPES, Cell
from normlab.sweeps.definitions import definitions
from normlab.sweeps.grids import specs_of
from normlab.sweeps.loading import load, read_run
from normlab.sweeps.pool import refuse_unguarded
from normlab.sweeps.progress import Progress, ProgressCallback, remaining_seconds
from normlab.sweeps.records import Record, SweepWarning
from normlab.sweeps.workers import Task, import_plugins


def sweep(
    grid: ModelSpec | Iterable[ModelSpec],
    *,
    seeds: Iterable[int] = range(5),
    data: Source | None = None,
    out: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    plugins: Sequence[str] = (),
    sites: Iterable[str] | None = None,
    quantities: Iterable[str] | None = None,
    dtype: str = "float32",
    progress: ProgressCallback | None = None,
) -> pd.DataFrame:
    """Measure every spec of a grid with every seed, and return the table.

    A cell is one spec and one seed s: weights from seed s, a batch from seed 10000 + s, one forward and
    backward pass, recorded. Cells run on all cores in worker processes with one thread each; the same
    cells give the same bits whatever runs them. A cell that fails, or whose worker is killed, becomes a
    line with its error; the others go on.

    Args:
        grid: what :func:`normlab.grid` returns, or specs.
        seeds: one cell a spec and seed.
        data: what batches are drawn from; :class:`normlab.data.Text` unless given.
        out: run folder, created or extended: cells that it has are not run again, failed ones are.
            A temporary one unless given.
        executor: any :class:`concurrent.futures.Executor`, in place of local worker processes.
        jobs: number of worker processes; as many as cores and memory allow unless given. With 1, cells
            run in this process.
        plugins: modules that register norms, placements or inits; workers import them too.
        sites: what is recorded; the default sites unless given.
        quantities: what is computed there; all that apply unless given.
        dtype: ``float32``, ``float64``, ``bfloat16`` or ``float16``.
        progress: called with a :class:`~normlab.sweeps.Progress` after every cell.

    Returns:
        The table of the whole run folder, in key order.

    Raises:
        SpecError: there is no spec, a spec does not fit the data, or the dtype is not one of those.
        DataError: the data cannot be used.
        RunError: ``out`` cannot be written, belongs to another kind of run or to another process; workers
            cannot live here; or no cell worked.
        UnknownNameError: a site or quantity that a table does not have.

    Warns:
        SweepWarning: some cells failed, or had to run in this process.
    """
    refuse_unguarded()
    import_plugins(plugins)
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise RunError(f"jobs is {jobs!r}: give a whole number of at least 1")
    source = Text() if data is None else data
    cells = _cells(specs_of(grid), _seeds(seeds), source, dtype, _names(sites, "site"), _names(quantities, "quantity"))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="normlab-")) if out is None else out
        return _run(cells, Path(folder), _Way(executor, jobs, tuple(plugins), progress))


@dataclass(frozen=True)
class _Way:
    """How cells are run, which changes no number."""

    executor: Executor | None
    jobs: int | None
    plugins: tuple[str, ...]
    progress: ProgressCallback | None


def _cells(
    specs: Sequence[ModelSpec],
    seeds: Sequence[int],
    data: Source,
    dtype: str,
    sites: tuple[str, ...] | None,
    quantities: tuple[str, ...] | None,
) -> list[Cell]:
    """Return the cells, after checking what would make each of them fail."""
    if dtype not in DTYPES:
        raise SpecError(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}")
    data.draw(0)
    needed = data.needed_vocab()
    for spec in specs:
        if spec.vocab < needed:
            raise SpecError(f"vocab is {spec.vocab} and the data has tokens up to {needed - 1}: give at least {needed}")
        if spec.context < data.tokens:
            raise SpecError(f"context is {spec.context} and a batch has {data.tokens} tokens: give at least as many")
    return [Cell(spec, seed, data, dtype, sites, quantities) for spec in specs for seed in seeds]


def _seeds(given: Iterable[int]) -> list[int]:
    seeds = list(dict.fromkeys(given))
    if not seeds:
        raise SpecError("a sweep needs at least one seed: give seeds=range(5), for example")
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise SpecError(f"a seed is {seed!r}: give whole numbers of at least 0")
    return seeds


def _names(given: Iterable[str] | None, what: str) -> tuple[str, ...] | None:
    """Check names of sites or quantities, and put them into the table's order: their order does not matter."""
    if given is None:
        return None
    allowed = table.SITES if what == "site" else table.QUANTITIES
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in allowed:
            raise unknown_name(what, str(name), allowed)
    return tuple(name for name in allowed if name in names)


def _run(cells: list[Cell], folder: Path, way: _Way) -> pd.DataFrame:
    with store.opened(folder, cells) as kept:
        present = kept.present()
        ids = {cell.id: cell for cell in cells}
        missing = {id: cell for id, cell in ids.items() if id not in present}
        if missing or not (folder / results.CSV).exists():
            results.remove(folder)
            failed = _measure(kept, missing, len(ids), way)
            _join(folder)
            _tell(failed, len(ids))
    return load(folder)


def _measure(kept: store.Store, missing: dict[str, Cell], total: int, way: _Way) -> list[Record]:
    """Run the missing cells, keep each as it finishes, and return those that failed."""
    costs = {id: cost.seconds(cell) for id, cell in missing.items()}
    left, begin, done = sum(costs.values()), time.perf_counter(), 0.0
    failed: list[Record] = []
    with _threads_restored(), contextlib.closing(_finished(kept, missing, costs, way)) as cells:
        for number, finished in enumerate(cells, start=total - len(missing) + 1):
            record = finished.record
            kept.append(record, finished.content)
            failed += [record] if record.status != "ok" else []
            left, done = left - costs[record.id], done + costs[record.id]
            if way.progress is not None:
                elapsed = time.perf_counter() - begin
                ahead = remaining_seconds(elapsed, done, max(left, 0.0))
                way.progress(Progress(number, total, len(failed), elapsed, ahead, record.label))
    return failed


def _finished(kept: store.Store, missing: dict[str, Cell], costs: dict[str, float], way: _Way) -> engine.Finishing:
    """Choose what runs the cells; the longest start first, so that all workers end at about the same time."""
    order = sorted(missing, key=lambda id: -costs[id])
    cells = kept.cells.absolute()
    meanings = {spec: definitions(spec) for spec in {cell.spec for cell in missing.values()}}
    place = str(cells) if way.executor is None else None
    tasks = (Task(missing[id], id, place, way.plugins, meanings[missing[id].spec]) for id in order)
    workers = cost.workers(missing.values())
    if way.executor is not None:
        return engine.borrowed(tasks, kept.folder, way.executor, way.jobs, local_workers=workers, cells=cells)
    if way.jobs == 1 or len(missing) <= 1:
        return engine.inline(tasks)
    return engine.pooled(tasks, kept.folder, way.jobs or workers)


@contextlib.contextmanager
def _threads_restored() -> Iterator[None]:
    """Cells run with one thread; the caller's own number comes back afterwards."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _join(folder: Path) -> None:
    """Write the joined table of everything that the folder holds."""
    run = read_run(folder)
    if not run.ok:
        first = run.failed[0]
        raise RunError(
            f"no cell worked: all {len(run.failed)} failed, the first ({first.label}) with {first.error}: "
            f"remove the cause and sweep again"
        )
    ids = results.cell_index(run.header, run.ok)["name"]
    results.join(folder, [folder / "cells" / f"{id}.csv.gz" for id in ids])


def _tell(failed: list[Record], total: int) -> None:
    if failed:
        shown = "; ".join(f"{record.label}: {record.error}" for record in failed[:3])
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        warnings.warn(f"{len(failed)} of {total} cells failed: {shown}{more}", SweepWarning, stacklevel=4)
