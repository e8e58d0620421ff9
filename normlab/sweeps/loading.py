"""Reading a run: its table, and what happened to its cells."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from normlab import table
from normlab.errors import DataError, RunError
from normlab.sweeps import header as headers
from normlab.sweeps import records, results
from normlab.sweeps.records import Record
from normlab.sweeps.where import Condition, Where, conditions, matching


@dataclass(frozen=True)
class Run:
    """A run folder, finished or not, without its rows.

    Attributes:
        path: the folder.
        grid: the specs' fields that differ from the defaults, one mapping a spec.
        seeds: the seeds of all calls together.
        data: what batches were drawn from.
        dtype: of weights and activations.
        versions: of the packages that numbers can depend on.
        machine: what the numbers were computed on.
        created: when the run began, in UTC.
        planned: number of cells that were asked for.
        cells: finished cells in the order in which they finished, failed ones included.
        header: the whole of ``run.json``.
    """

    path: Path
    grid: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    data: dict[str, Any]
    dtype: str
    versions: dict[str, str]
    machine: dict[str, Any]
    created: str
    planned: int
    cells: tuple[Record, ...]
    header: dict[str, Any]

    @property
    def ok(self) -> tuple[Record, ...]:
        """The cells that have a table."""
        return tuple(record for record in self.cells if record.status == "ok")

    @property
    def failed(self) -> tuple[Record, ...]:
        """The cells that ended with an error, each with its error."""
        return tuple(record for record in self.cells if record.status != "ok")

    @property
    def unfinished(self) -> int:
        """Number of cells that were asked for and have not been run to their end."""
        return self.planned - len(self.cells)


def read_run(path: Path | str) -> Run:
    """Read what a run is and what became of its cells.

    Raises:
        RunError: ``path`` is not a run folder, or one of another schema.
    """
    folder = Path(path)
    header = headers.read(folder)
    asked = {(spec, seed) for call in header["calls"] for spec in call["specs"] for seed in call["seeds"]}
    return Run(
        path=folder,
        grid=tuple(entry["spec"] for entry in header["grid"]),
        seeds=tuple(header["seeds"]),
        data=header["data"],
        dtype=header["dtype"],
        versions=header["versions"],
        machine=header["machine"],
        created=header["created"],
        planned=len(asked),
        cells=tuple(records.read(folder / records.NAME).values()),
        header=header,
    )


def load(path: Path | str, where: Where = None) -> pd.DataFrame:
    """Return the table of a run folder, or of a table's file (``.csv``, ``.csv.gz``, ``.parquet``).

    A run that is not finished gives the cells that are. With a condition, cells that cannot meet it are
    not read, and no more than one cell's rows are held beside those that are returned.

    Args:
        path: a run folder or a file.
        where: a pandas query (``"depth == 8 and site == 'stream'"``), or a mapping from columns to a value
            or a list of values.

    Raises:
        RunError: the folder is not a run, or has no finished cell.
        DataError: the file is not a table, or the query cannot be evaluated.
        UnknownNameError: the condition names a column that the table does not have.
    """
    place, wanted = Path(path), conditions(where)
    if not place.exists():
        raise RunError(f"{place} does not exist: give a run folder or a table's file")
    if not place.is_dir():
        return matching(_read_file(place), wanted).reset_index(drop=True)
    if not wanted and (place / results.CSV).exists():
        return _joined(read_run(place))
    nothing = pd.DataFrame({name: [] for name in (*table.COLUMNS, *table.CELL_COLUMNS)})
    found = table.concat(_matching_cells(read_run(place), wanted))
    return found if len(found) else table.normalise(nothing)


def _read_file(path: Path) -> pd.DataFrame:
    if path.suffix != ".parquet":
        return table.read_csv(path)
    try:
        return table.normalise(pd.read_parquet(path))
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{path} cannot be read as a table ({error}): give a file that normlab wrote") from error


def _joined(run: Run) -> pd.DataFrame:
    """Read the joined table; of the cells' own columns only one, since ``run.json`` has what stands in each cell."""
    path = run.path / results.CSV
    index = results.cell_index(run.header, run.ok)
    rows = {record.id: record.rows for record in run.ok}
    of_cells = index.take(np.repeat(np.arange(len(index)), [rows[str(id)] for id in index["name"]]))
    frame = table.read_csv(path, columns=[*table.COLUMNS, "model_seed"])
    if not np.array_equal(frame["model_seed"], of_cells["model_seed"]):
        return table.read_csv(path)
    of_rows = table.normalise(frame.drop(columns="model_seed"))
    return pd.concat([of_rows, of_cells[list(table.CELL_COLUMNS)].reset_index(drop=True)], axis=1)


def _matching_cells(run: Run, wanted: tuple[Condition, ...]) -> Iterator[pd.DataFrame]:
    if not run.ok:
        raise RunError(f"{run.path} has no finished cell: run the sweep with the same out to the end")
    of_cells = tuple(
        condition for condition in wanted if condition.columns and condition.columns <= set(table.CELL_COLUMNS)
    )
    of_rows = tuple(condition for condition in wanted if condition not in of_cells)
    for id in matching(results.cell_index(run.header, run.ok), of_cells)["name"]:
        yield matching(table.read_csv(run.path / "cells" / f"{id}.csv.gz"), of_rows)
