"""The table: the one format in which every measurement, prediction and file of normlab is written.

A table is a tidy pandas DataFrame with the columns of :data:`COLUMNS`; in a sweep the columns of
:data:`CELL_COLUMNS` follow. String columns are categorical (an empty string where a column does not
apply), whole numbers are ``Int64`` (``<NA>`` where they do not apply), and everything else is
``float64``. :data:`QUANTITIES` and :data:`SITES` define what the rows mean.

:func:`key` names the columns that identify a row. Rows stand in the order of the cell's columns, then
``step``, then the columns before ``value`` (sub-layers, sites and quantities in the order in which
they are defined here): a whole run is its cells one after the other.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from normlab.errors import DataError, suggest
from normlab.schema import CELL_COLUMNS, COLUMNS, RESULTS, SCHEMA_VERSION, SUBLAYERS, ColumnKind, key, kinds
from normlab.vocabulary import QUANTITIES, SITES, Quantity, Site

__all__ = [
    "CELL_COLUMNS",
    "COLUMNS",
    "QUANTITIES",
    "RESULTS",
    "SCHEMA_VERSION",
    "SITES",
    "SUBLAYERS",
    "Quantity",
    "Site",
    "cells",
    "concat",
    "from_rows",
    "key",
    "kinds",
    "normalise",
    "ordered",
    "read_csv",
    "to_csv_bytes",
]

_RANKS: Final[Mapping[str, Mapping[str, int]]] = {
    "source": {"measured": 0, "theory": 1},
    "stack": {"encoder": 0, "decoder": 1},
    "sublayer": {name: rank for rank, name in enumerate(SUBLAYERS)},
    "site": {name: rank for rank, name in enumerate(SITES)},
    "quantity": {name: rank for rank, name in enumerate(QUANTITIES)},
}


def from_rows(rows: Sequence[Mapping[str, object]], cell: Mapping[str, object] | None = None) -> pd.DataFrame:
    """Build a table from rows that name only the columns that apply to them.

    Args:
        rows: one mapping a row; ``source`` is ``measured``, ``status`` ``ok`` and ``step`` 0 unless given.
        cell: values of the cell's columns, the same for every row.

    Raises:
        DataError: a row names a column that :data:`COLUMNS` does not have.
    """
    unknown = {name for row in rows for name in row} - set(COLUMNS)
    if unknown:
        name = sorted(unknown)[0]
        raise DataError(f"a table has no column {name!r}: its columns are {', '.join(COLUMNS)}{suggest(name, COLUMNS)}")
    defaults: dict[str, object] = {"source": "measured", "status": "ok", "step": 0}
    data: dict[str, list[object]] = {name: [row.get(name, defaults.get(name)) for row in rows] for name in COLUMNS}
    data |= {name: [value] * len(rows) for name, value in (cell or {}).items()}
    return ordered(normalise(pd.DataFrame(data)))


def normalise(frame: pd.DataFrame) -> pd.DataFrame:
    """Return ``frame`` with the dtypes of the schema, and its missing columns added."""
    columns = [*COLUMNS, *(name for name in key(frame.columns) if name not in COLUMNS)]
    return pd.DataFrame({name: _column(frame, name, kind) for name, kind in kinds(columns).items()})


def _column(frame: pd.DataFrame, name: str, kind: ColumnKind) -> pd.Series:
    if name not in frame.columns:
        values = pd.Series([None] * len(frame), index=frame.index, dtype=object)
    else:
        values = frame[name]
    if kind == "integer":
        return values if values.dtype == "Int64" else _whole(values.astype("Float64"))
    if kind == "float":
        return values.astype("float64")
    if isinstance(values.dtype, pd.CategoricalDtype):
        categories = values.cat.categories
        codes = values.cat.codes.to_numpy()
        if categories.is_monotonic_increasing and not (codes < 0).any():
            used = np.zeros(len(categories), bool)
            used[codes] = True
            return values if used.all() else values.cat.remove_unused_categories()
    text = values.astype(object).where(values.notna(), "").astype(str)
    return text.astype(pd.CategoricalDtype(sorted(set(text))))


def _whole(values: pd.Series) -> pd.Series:
    """Return whole numbers, of which some may be absent.

    pandas casts what is absent too, and hides the warning in a way that other threads can undo.
    """
    absent = values.isna()
    return values.fillna(0).astype("Int64").mask(absent)


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a normalised table in the order of its key.

    Raises:
        DataError: two rows have the same key.
    """
    columns = key(frame.columns)
    ranks = [_sort_rank(frame[name], name) for name in columns if frame[name].nunique(dropna=False) > 1]
    if not ranks:
        return frame.reset_index(drop=True)
    order = np.lexsort(ranks[::-1])
    stacked = np.stack([rank[order] for rank in ranks])
    same = (stacked[:, 1:] == stacked[:, :-1]).all(axis=0)
    if same.any():
        row = frame.iloc[order[1:][same][0]]
        what = ", ".join(f"{name}={row[name]}" for name in columns if str(row[name]) not in ("", "<NA>"))
        raise DataError(f"two rows have the same key ({what}): give each measurement its own name, call or step")
    return frame.iloc[order].reset_index(drop=True)


def _sort_rank(column: pd.Series, name: str) -> np.ndarray:
    """Numbers that sort as the column does: definition order for known names, then the alphabet."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        known = _RANKS.get(name, {})
        categories = [str(category) for category in column.cat.categories]
        places = {category: place for place, category in enumerate(sorted(categories))}
        ranks = [known.get(category, len(known) + places[category]) for category in categories]
        return np.asarray(ranks, dtype=np.int64)[column.cat.codes.to_numpy()]
    return column.to_numpy(dtype="float64", na_value=-1.0)


def concat(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return one table with the rows of all, in key order; columns that one lacks are empty there."""
    frames = [frame for frame in tables if len(frame)]
    if not frames:
        return normalise(pd.DataFrame({name: [] for name in COLUMNS}))
    columns = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    joined = {name: _joined(frames, name, kind) for name, kind in kinds(columns).items()}
    return ordered(normalise(pd.DataFrame(joined)))


def _joined(frames: Sequence[pd.DataFrame], name: str, kind: ColumnKind) -> pd.Series:
    parts = [_column(frame, name, kind) for frame in frames]
    if kind != "text":
        return pd.concat(parts, ignore_index=True)
    categories = sorted({str(category) for part in parts for category in part.cat.categories})
    return pd.concat([part.cat.set_categories(categories) for part in parts], ignore_index=True)


def _cells_of(frame: pd.DataFrame, name: str) -> list[object]:
    """One column as what csv writes: shortest round-trip floats, an empty field where there is nothing."""
    cells: list[object] = frame[name].to_numpy(dtype=object, na_value="").tolist()
    return cells


def to_csv_bytes(frame: pd.DataFrame, *, header: bool = True) -> bytes:
    """Return a table as gzip-compressed CSV: the same table gives the same bytes.

    Compressed files can be joined end to end (``header=False`` for all but the first).
    """
    varying = _varying_columns(frame)
    text = _csv_text(_cells_of(frame, name) for name in frame.columns[:varying])
    if varying < len(frame.columns):
        # A cell's own columns are the same in all of its rows: they are written once and repeated as text.
        first = frame.iloc[:1]
        tail = _csv_text(_cells_of(first, name) for name in frame.columns[varying:])
        text = text.replace("\n", f",{tail}")
    names = _csv_text([name] for name in frame.columns) if header else ""
    return gzip.compress((names + text).encode(), compresslevel=3, mtime=0)


def _csv_text(columns: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue()


def _varying_columns(frame: pd.DataFrame) -> int:
    """Number of columns before those that are constant to the end; all of them where a name has a line break."""
    count = len(frame.columns)
    texts = (frame[name].cat.categories for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype))
    if any("\n" in str(category) for categories in texts for category in categories):
        return count
    while count > 1 and frame[frame.columns[count - 1]].nunique(dropna=False) == 1:
        count -= 1
    return count


def read_csv(path: Path | str, *, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a table that normlab wrote (``.csv`` or ``.csv.gz``).

    Raises:
        DataError: the file is not such a table.
    """
    try:
        names = [str(name) for name in pd.read_csv(path, nrows=0).columns]
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise DataError(
                f"{path} is not a table of normlab: it has no column {missing[0]!r}; give a file that normlab wrote"
            )
        numbers = [name for name, kind in kinds(names).items() if kind != "text"]
        types = {"text": "category", "integer": "Int64", "float": "float64"}
        frame = pd.read_csv(
            path,
            usecols=None if columns is None else list(columns),
            dtype={name: types[kind] for name, kind in kinds(names).items()},
            keep_default_na=False,
            na_values={name: [""] for name in numbers},
        )
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as a table ({error}): give a file that normlab wrote") from error
    return frame if columns is not None else normalise(frame)


def cells(frame: pd.DataFrame) -> Iterator[tuple[dict[str, object], pd.DataFrame]]:
    """Yield each cell of a sweep's table: its columns as plain values, and its rows."""
    names = [name for name in key(frame.columns) if name not in COLUMNS]
    varying = [name for name in names if frame[name].nunique(dropna=False) > 1]
    if not varying:
        yield _cell(frame, names), frame
        return
    for _, rows in frame.groupby(varying, observed=True, dropna=False, sort=False):
        yield _cell(rows, names), rows


def _cell(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, object]:
    return {name: frame[name].iloc[0] for name in names} if len(frame) else {}
