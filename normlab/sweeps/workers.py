"""What runs in a worker: one task, its file, and a short record that goes back."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path

import pandas as pd
import torch

from normlab import table
from normlab.errors import RunError, UnknownNameError
from normlab.sweeps.cells import Cell, run_cell
from normlab.sweeps.definitions import definitions
from normlab.sweeps.files import write_bytes, writing
from normlab.sweeps.records import Record, record_of

#: An exception's text is cut here: a record is a short line.
ERROR_LENGTH = 400

#: Priority of what a process does first when it ends.
_FIRST = 1000


class UnregisteredError(UnknownNameError):
    """A worker does not know a name, or knows another thing by it."""


@dataclass(frozen=True)
class Task:
    """A cell, and what a process needs to run it.

    Attributes:
        cell: what to measure.
        id: the cell's, as the sweep computed it.
        cells: folder that the worker writes the cell's file to, or ``None`` where it has to send it back.
        plugins: modules to import first.
        meaning: what the spec's names stand for in the process of the sweep.
    """

    cell: Cell
    id: str
    cells: str | None = None
    plugins: tuple[str, ...] = ()
    meaning: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A finished cell: its record, and its file's content unless the worker has written it."""

    record: Record
    content: bytes | None = None


def import_plugins(plugins: Iterable[str]) -> None:
    """Import modules that register norms, placements, inits or claims.

    Raises:
        RunError: one of them cannot be imported.
    """
    for name in plugins:
        try:
            import_module(name)
        except Exception as error:
            raise RunError(
                f"plugin {name!r} cannot be imported ({type(error).__name__}: {error}): "
                f"give the name of an importable module"
            ) from error


def start_worker() -> None:
    """Prepare a fresh worker process.

    Ctrl-C belongs to the sweep, which stops its workers; one whose sweep was killed leaves by itself. A worker
    that is done leaves at once: taking torch apart takes a third of a second, and nothing is left to be kept.
    """
    Finalize(None, _leave, exitpriority=_FIRST)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    gc.collect()
    gc.freeze()


def _leave() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work(task: Task) -> Finished:
    """Run one cell. An exception of the cell is a record; what stops a whole sweep is raised.

    Raises:
        UnregisteredError: this process does not know the spec's names as the sweep does.
        RunError: the file cannot be written, or a plugin cannot be imported.
    """
    import_plugins(task.plugins)
    _check_names(task)
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)  # bits depend on it
    with _started(task):
        begin = time.perf_counter()
        measured = _attempt(task)
        if parent_process() is not None:
            gc.collect()  # a model in a reference cycle would stay beside the next; start_worker makes this cheap
        if isinstance(measured, str):
            elapsed = time.perf_counter() - begin
            return Finished(record_of(task.cell, task.id, "failed", seconds=elapsed, error=measured))
        content = cell_bytes(measured)
        if task.cells is not None:
            write_bytes(Path(task.cells) / f"{task.id}.csv.gz", content)
        elapsed = time.perf_counter() - begin
        record = record_of(task.cell, task.id, "ok", rows=len(measured), seconds=elapsed)
        return Finished(record, content if task.cells is None else None)


def _check_names(task: Task) -> None:
    here = definitions(task.cell.spec)
    strange = [name for name, meaning in task.meaning.items() if here.get(name) != meaning]
    if strange:
        raise UnregisteredError(f"a worker process does not know {', '.join(strange)}")


def _attempt(task: Task) -> pd.DataFrame | str:
    """Return the cell's table, or in one line what went wrong."""
    try:
        if task.cell.id != task.id:
            return "the text changed while the sweep was running: run it again"
        return run_cell(task.cell)
    except (Exception, SystemExit) as error:
        return describe_error(error)


def describe_error(error: BaseException) -> str:
    """Return an exception in one line, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    shortened = text if len(text) <= ERROR_LENGTH else text[: ERROR_LENGTH - 1] + "…"
    return f"{type(error).__name__}: {shortened}{place}" if shortened else f"{type(error).__name__}{place}"


@lru_cache(maxsize=1)
def header_bytes() -> bytes:
    """Return the first compressed member of every cell's file: the names of the columns."""
    return table.to_csv_bytes(pd.DataFrame({name: [] for name in (*table.COLUMNS, *table.CELL_COLUMNS)}))


def cell_bytes(frame: pd.DataFrame) -> bytes:
    """Return a table as two compressed members, names and rows, so that files can be joined without reading them."""
    return header_bytes() + table.to_csv_bytes(frame, header=False)


def marker_of(cells: Path | str, id: str) -> Path:
    """Return the file that stands while a worker runs the cell ``id``."""
    return Path(cells) / f"{id}.started"


@contextlib.contextmanager
def _started(task: Task) -> Iterator[None]:
    """Mark the cell while it runs: what is still marked after a worker's death is a suspect."""
    if task.cells is None:
        yield
        return
    marker = marker_of(task.cells, task.id)
    with writing(marker):
        marker.touch()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            marker.unlink()
