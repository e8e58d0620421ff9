"""The whole table of a run: its cells' files joined in key order, one at a time."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from normlab import table
from normlab.errors import RunError
from normlab.files import whole_file
from normlab.sweeps import header as headers
from normlab.sweeps.files import writing
from normlab.sweeps.records import Record
from normlab.sweeps.workers import header_bytes

CSV, PARQUET = "results.csv.gz", "results.parquet"

#: Rows that are held at a time where a file is written in blocks.
BLOCK_ROWS = 200_000


def remove(folder: Path) -> None:
    """Remove the joined tables, which will lack what is about to be measured.

    Raises:
        RunError: they cannot be removed.
    """
    for path in (folder / CSV, folder / PARQUET):
        with writing(path):
            path.unlink(missing_ok=True)


def cell_index(header: dict[str, Any], records: Iterable[Record]) -> pd.DataFrame:
    """Return one row a cell, in key order of their tables: the cell's columns, and its id as ``name``."""
    rows = [
        {**headers.cell_columns(header, record.spec, record.model_seed, record.data_seed), "name": record.id}
        for record in records
    ]
    return table.ordered(table.normalise(pd.DataFrame(rows, columns=[*table.CELL_COLUMNS, "name"])))


def join(folder: Path, files: list[Path]) -> None:
    """Write ``results.csv.gz``, and ``results.parquet`` where pyarrow is installed, from cells in key order.

    Compressed files can be joined end to end, so no cell is unpacked and memory stays at one buffer.

    Raises:
        RunError: they cannot be written, or a cell's file is not what this version writes.
    """
    with writing(folder / CSV), whole_file(folder / CSV) as part, part.open("wb") as joined:
        for number, path in enumerate(files):
            with path.open("rb") as file:
                start = file.read(len(header_bytes()))
                if start != header_bytes():
                    raise RunError(f"{path} has other columns than this normlab writes: remove it and sweep again")
                joined.write(b"" if number else start)
                shutil.copyfileobj(file, joined)
    if find_spec("pyarrow"):
        _join_parquet(folder / PARQUET, files)


def _join_parquet(path: Path, files: list[Path]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    types = {"text": pa.string(), "integer": pa.int64(), "float": pa.float64()}
    kinds = table.kinds([*table.COLUMNS, *table.CELL_COLUMNS])
    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    with writing(path), whole_file(path) as part, parquet.ParquetWriter(part, schema) as writer:
        for block in blocks(files, table.read_csv):
            text = {name: block[name].astype(object) for name, kind in kinds.items() if kind == "text"}
            writer.write_table(pa.Table.from_pandas(block.assign(**text), schema=schema, preserve_index=False))


def blocks(files: Iterable[Path], read: Callable[[Path], pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield the rows of files in order, several small files at a time."""
    held: list[pd.DataFrame] = []
    for path in files:
        held.append(read(path))
        if sum(map(len, held)) >= BLOCK_ROWS:
            yield pd.concat(held, ignore_index=True)
            held = []
    if held:
        yield pd.concat(held, ignore_index=True)
