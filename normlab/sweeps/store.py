"""A run folder while it is written: ``run.json``, ``cells.jsonl`` and ``cells/``."""

import contextlib
import gzip
import json
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.errors import RunError
from normlab.sweeps import header as headers
from normlab.sweeps import records
from normlab.sweeps.cells import Cell
from normlab.sweeps.files import write_bytes, writing
from normlab.sweeps.lock import locked
from normlab.sweeps.records import Record, SweepWarning


@dataclass(frozen=True)
class Store:
    """A run folder that this process holds the lock of.

    Attributes:
        folder: the run folder.
    """

    folder: Path

    @property
    def cells(self) -> Path:
        """The folder of the cells' files."""
        return self.folder / "cells"

    def file_of(self, id: str) -> Path:
        """Return the file of the cell ``id``."""
        return self.cells / f"{id}.csv.gz"

    def append(self, record: Record, content: bytes | None = None) -> None:
        """Keep a finished cell: first its rows, where the worker has not written them, then its line.

        Raises:
            RunError: the folder cannot be written.
        """
        if content is not None:
            write_bytes(self.file_of(record.id), content)
        records.append(self.folder / records.NAME, record)

    def present(self) -> dict[str, Record]:
        """Return the cells that need not be run again, by id."""
        known = records.read(self.folder / records.NAME)
        return {id: record for id, record in known.items() if record.status == "ok"}


@contextlib.contextmanager
def opened(folder: Path, cells: Sequence[Cell]) -> Iterator[Store]:
    """Create or extend a run folder for ``cells``, and hold its lock.

    Raises:
        RunError: the folder belongs to another kind of run, another process writes it, or it cannot be written.
    """
    wanted = headers.header_of(cells)
    with writing(folder):
        if (folder / headers.NAME).exists():
            headers.check_extends(folder, headers.read(folder), wanted)
        elif (folder / records.NAME).exists():
            raise RunError(f"{folder} has {records.NAME} and no {headers.NAME}: choose another out")
        (folder / "cells").mkdir(parents=True, exist_ok=True)
    with locked(folder):
        store = Store(folder)
        _write_header(folder, wanted)
        _repair(store)
        yield store


def _write_header(folder: Path, wanted: dict[str, Any]) -> None:
    path = folder / headers.NAME
    present = headers.read(folder) if path.exists() else None
    if present is not None:
        # Another process may have created the folder before the lock was held.
        headers.check_extends(folder, present, wanted)
        changed = headers.changed_versions(present, wanted)
        if changed:
            warnings.warn(f"{folder} goes on with other versions: {changed}", SweepWarning, stacklevel=2)
    merged = wanted if present is None else headers.merged(present, wanted)
    if merged != present:
        write_bytes(path, (json.dumps(merged, indent=1, ensure_ascii=False) + "\n").encode())


def _repair(store: Store) -> None:
    """Remove what a killed run left half done."""
    with writing(store.cells):
        for path in (*store.cells.glob("*.started"), *store.cells.glob(".*.part"), *store.folder.glob(".*.part")):
            path.unlink(missing_ok=True)
    lines = store.folder / records.NAME
    known = records.read(lines)
    damaged = {
        id for id, record in known.items() if record.status == "ok" and not is_whole(store.file_of(id), record.rows)
    }
    if damaged:
        what = "the file of a cell is" if len(damaged) == 1 else f"the files of {len(damaged)} cells are"
        warnings.warn(f"{store.cells}: {what} missing or damaged, and counts as not run", SweepWarning, stacklevel=2)
    if damaged or not records.is_tidy(lines, len(known)):
        records.rewrite(lines, {id: record for id, record in known.items() if id not in damaged})


def is_whole(path: Path, rows: int) -> bool:
    """Whether a cell's file can be read to its end and has ``rows`` rows."""
    try:
        with gzip.open(path) as file:
            lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except (OSError, EOFError, zlib.error):
        return False
    return lines == rows + 1
