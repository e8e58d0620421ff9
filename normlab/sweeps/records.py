"""One short line a finished cell: ``cells.jsonl``, which resuming reads."""

import json
import os
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias

from normlab.errors import RunError
from normlab.sweeps.cells import Cell
from normlab.sweeps.files import write_bytes, writing

NAME = "cells.jsonl"

Status: TypeAlias = Literal["ok", "failed", "crashed"]


class SweepWarning(UserWarning):
    """Something about a sweep that its caller should know, and that did not stop it."""


@dataclass(frozen=True)
class Record:
    """What is known of a finished cell.

    Attributes:
        id: the cell's.
        status: ``ok``; ``failed`` with an exception; or ``crashed``: its worker was killed, twice.
        label: the cell in a few words.
        spec: id of its spec.
        model_seed: seed of the weights.
        data_seed: seed of the batch.
        rows: of its table.
        seconds: that building, recording and writing took.
        error: what went wrong, in one line; empty where nothing did.
    """

    id: str
    status: Status
    label: str
    spec: str
    model_seed: int
    data_seed: int
    rows: int = 0
    seconds: float = 0.0
    error: str = ""


def record_of(cell: Cell, id: str, status: Status, *, rows: int = 0, seconds: float = 0.0, error: str = "") -> Record:
    """Return the record of ``cell``."""
    return Record(
        id=id,
        status=status,
        label=cell.label,
        spec=cell.spec.id,
        model_seed=cell.model_seed,
        data_seed=cell.data_seed,
        rows=rows,
        seconds=round(seconds, 4),
        error=error,
    )


def append(path: Path, record: Record) -> None:
    """Add a line, in one write, so that a reader sees all of it or none.

    Raises:
        RunError: it cannot be written.
    """
    line = (json.dumps(asdict(record), ensure_ascii=False) + "\n").encode()
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(descriptor, line)
            if written < len(line):
                os.write(descriptor, line[written:])  # raises what stopped the first write
        finally:
            os.close(descriptor)


def read(path: Path) -> dict[str, Record]:
    """Return the last record of each cell, by id.

    Lines that are torn or damaged are left out with a :class:`SweepWarning`: their cells count as not run.

    Raises:
        RunError: the file cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror or error}): give the folder of a run") from error
    found: dict[str, Record] = {}
    damaged = 0
    for line in lines:
        record = _parsed(line)
        if record is not None:
            found[record.id] = record
        elif line:
            damaged += 1
    if damaged:
        what = "a torn line is" if damaged == 1 else f"{damaged} torn lines are"
        warnings.warn(f"{path}: {what} left out, and its cell counts as not run", SweepWarning, stacklevel=2)
    return found


def _parsed(line: bytes) -> Record | None:
    try:
        values = json.loads(line)
        return Record(**{field.name: values[field.name] for field in fields(Record)})
    except (ValueError, TypeError, KeyError):
        return None


def is_tidy(path: Path, count: int) -> bool:
    """Whether the file has one whole line for each of ``count`` records, or is not there where there is none."""
    content = path.read_bytes() if path.exists() else b""
    return content.count(b"\n") == count and (not content or content.endswith(b"\n"))


def rewrite(path: Path, records: dict[str, Record]) -> None:
    """Replace the file by one line a record, so that nothing can be glued to a torn end.

    Raises:
        RunError: it cannot be written.
    """
    lines = [json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records.values()]
    write_bytes(path, "".join(lines).encode())
