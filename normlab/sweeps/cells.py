"""A cell: one model on one batch, and the pure function that measures it."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import torch

from normlab import table
from normlab.data import Source
from normlab.models import build
from normlab.recording import record
from normlab.schema import ColumnKind
from normlab.spec import ModelSpec

#: The dtypes that a sweep can run in.
DTYPES: Final = ("float32", "float64", "bfloat16", "float16")

#: Added to a seed to give the seed of the data, so that weights and windows are drawn apart.
DATA_SEED_OFFSET: Final = 10_000


@dataclass(frozen=True)
class Cell:
    """Everything that determines one cell's numbers.

    Attributes:
        spec: the model.
        seed: s; ``model_seed`` is s and ``data_seed`` is 10000 + s.
        data: what the batch is drawn from.
        dtype: of weights and activations, one of :data:`DTYPES`.
        sites: what is recorded; the default sites unless given.
        quantities: what is computed there; all that apply unless given.
    """

    spec: ModelSpec
    seed: int
    data: Source
    dtype: str = "float32"
    sites: tuple[str, ...] | None = None
    quantities: tuple[str, ...] | None = None

    @property
    def model_seed(self) -> int:
        """The seed of the weights."""
        return self.seed

    @property
    def data_seed(self) -> int:
        """The seed of the batch."""
        return DATA_SEED_OFFSET + self.seed

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that hash what determines the numbers, and nothing else.

        A norm, placement or init enters by its name: one that changes needs another name, or another
        run folder.
        """
        drawn_from = {name: value for name, value in self.data.to_dict().items() if name != "path"}
        content = {
            "schema": table.SCHEMA_VERSION,
            "spec": self.spec.to_dict(),
            "seeds": [self.model_seed, self.data_seed],
            "data": drawn_from,
            "dtype": self.dtype,
            "sites": self.sites,
            "quantities": self.quantities,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """A few words for people."""
        spec = self.spec
        placement = spec.placement if isinstance(spec.placement, str) else "mixed"
        return f"{placement} {spec.norm} depth {spec.depth} width {spec.width} seed {self.seed}"

    def columns(self) -> dict[str, object]:
        """Return the values of :data:`normlab.table.CELL_COLUMNS`."""
        seeds = {"loss": "cross-entropy", "model_seed": self.model_seed, "data_seed": self.data_seed}
        values = self.spec.columns() | self.data.columns() | seeds
        return {name: values[name] for name in table.CELL_COLUMNS}


def run_cell(cell: Cell) -> pd.DataFrame:
    """Build the cell's model, draw its batch, and record one forward and backward pass of the loss.

    Returns:
        The table: what the recorder saw, the loss among it, and the cell's columns. The same cell gives
        the same bits on one machine with one thread.
    """
    model = build(cell.spec, seed=cell.model_seed, dtype=getattr(torch, cell.dtype))
    batch = cell.data.draw(cell.data_seed)
    with _dropout_seed(cell), record(model, sites=cell.sites, quantities=cell.quantities) as recorder:
        model.loss(*batch).backward()
    return with_columns(recorder.table(), cell.columns())


@contextlib.contextmanager
def _dropout_seed(cell: Cell) -> Iterator[None]:
    """Seed what dropout draws from, and leave the caller's random state as it was."""
    if not cell.spec.dropout:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.model_seed)
        yield


def with_columns(frame: pd.DataFrame, columns: dict[str, object]) -> pd.DataFrame:
    """Return ``frame`` with constant columns added, in the dtypes of the schema.

    The same as normalising them, without visiting a row: a deep cell has many.
    """
    kinds = table.kinds(columns)
    return frame.assign(**{name: _constant(value, kinds[name], frame.index) for name, value in columns.items()})


def _constant(value: object, kind: ColumnKind, index: pd.Index) -> pd.Series:
    if kind == "text":
        categories = pd.Index(["" if value is None else str(value)])
        return pd.Series(pd.Categorical.from_codes(np.zeros(len(index), dtype=np.int8), categories), index=index)
    return pd.Series(value, index=index, dtype="Int64" if kind == "integer" else "float64")
