"""What a report is about: a table, and where there is one the run folder that it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd

from normlab.errors import DataError
from normlab.sweeps import Record, load, read_run
from normlab.table import CELL_COLUMNS, COLUMNS, key

_SEEDS: Final = ("model_seed", "data_seed")
#: Said elsewhere, or an abbreviation of what the other columns say.
_NOT_SAID: Final = ("spec",)


@dataclass(frozen=True)
class Source:
    """A table and what is known of how it came about.

    Attributes:
        table: the measurements.
        load: the code that gives the table again.
        created: when the run began, if it is known.
        failed: cells that ended with an error.
        unfinished: cells that were asked for and have not been run.
        versions: of the packages that the numbers depend on.
        machine: what the numbers were computed on.
        data: what batches were drawn from.
        folder: the run folder, if there is one.
    """

    table: pd.DataFrame
    load: str
    created: str = ""
    failed: tuple[Record, ...] = ()
    unfinished: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def cell_columns(self) -> list[str]:
        """The columns that tell cells apart, other than the seeds."""
        names = [name for name in key(self.table.columns) if name not in COLUMNS]
        return [name for name in names if name not in (*_SEEDS, *_NOT_SAID)]

    @property
    def varying(self) -> dict[str, list[str]]:
        """The axes of the grid: columns with several values, and those values."""
        return {name: values for name, values in self._values.items() if len(values) > 1}

    @property
    def constant(self) -> dict[str, str]:
        """The columns that are the same in every cell."""
        return {name: values[0] for name, values in self._values.items() if len(values) == 1}

    @cached_property
    def cells(self) -> int:
        """Number of cells with rows."""
        names = [name for name in (*self.cell_columns, *_SEEDS) if name in self.table.columns]
        varying = [name for name in names if self.table[name].nunique(dropna=False) > 1]
        return len(self.table[varying].drop_duplicates()) if varying else 1

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        if "model_seed" not in self.table.columns:
            return []
        return sorted(int(seed) for seed in self.table["model_seed"].dropna().unique())

    @cached_property
    def _values(self) -> dict[str, list[str]]:
        found = {}
        for name in self.cell_columns:
            values = [value for value in self.table[name].drop_duplicates() if str(value) not in ("", "<NA>", "nan")]
            numeric = CELL_COLUMNS.get(name) in ("integer", "float")
            ordered = sorted(values) if numeric else values
            if ordered:
                found[name] = [f"{value:g}" if CELL_COLUMNS.get(name) == "float" else str(value) for value in ordered]
        return found


def read_source(run_or_table: pd.DataFrame | Path | str) -> Source:
    """Take a table as it is, or read a run folder or a table's file.

    Raises:
        RunError: the folder is not a run, or has no finished cell.
        DataError: the file or the data frame is not a table, or it has no rows.
    """
    if isinstance(run_or_table, pd.DataFrame):
        source = Source(_checked(run_or_table), load="table = ...  # the table that this report was made from")
    else:
        source = _read(Path(run_or_table))
    if source.table.empty:
        raise DataError("the table has no rows, so there is nothing to report: run a sweep to its end first")
    return source


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise DataError(f"the data frame has no column {missing[0]!r}: give a table of normlab, as nl.load returns it")
    return table


def _read(path: Path) -> Source:
    code = f'import normlab as nl\n\ntable = nl.load("{path.as_posix()}")'
    table = load(path)
    if not path.is_dir():
        return Source(table, load=code)
    run = read_run(path)
    return Source(
        table=table,
        load=code,
        created=run.created,
        failed=run.failed,
        unfinished=run.unfinished,
        versions=run.versions,
        machine=run.machine,
        data=run.data,
        folder=path,
    )
