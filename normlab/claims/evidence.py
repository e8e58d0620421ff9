"""Evidence that no sweep gives: a computation whose numbers are rows of the table like any others."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import pandas as pd

from normlab.schema import CELL_COLUMNS
from normlab.table import normalise, ordered

if TYPE_CHECKING:
    from normlab.spec import ModelSpec

#: The quantity of such rows; the column ``name`` says which number it is.
QUANTITY = "evidence"
_DATA_SEED_OFFSET = 10_000


class Number(NamedTuple):
    """One number that a computation found.

    Attributes:
        name: which number, as the claim's statistic asks for it.
        value: the number.
        spec: the model that it belongs to, where there is one.
        columns: other columns of its row, such as ``{"width": 64}`` or ``{"layer": 3}``.
    """

    name: str
    value: float
    spec: "ModelSpec | None" = None
    columns: Mapping[str, object] = {}


#: Maps a seed to numbers; everything random in it comes from the seed.
Measure: TypeAlias = Callable[[int], Iterable[Number]]


@dataclass(frozen=True)
class Evidence:
    """A computation whose numbers decide a claim.

    Attributes:
        measure: the function, or ``module:function`` of one that is imported when it runs.
        version: raised whenever its numbers change; results that are kept in a folder go by it.
        once: whether nothing in it is random, so that the first seed says all.
        alone: whether it measures time, and nothing else should run beside it.
    """

    measure: Measure | str
    version: int = 1
    once: bool = False
    alone: bool = False

    @property
    def name(self) -> str:
        """The function's name, in files and messages."""
        given = self.measure
        return given.rpartition(":")[2] if isinstance(given, str) else given.__name__

    def rows(self, seed: int) -> pd.DataFrame:
        """Return the table of one seed."""
        return _table(_numbers(self.measure)(seed), seed)


def _numbers(measure: Measure | str) -> Measure:
    if not isinstance(measure, str):
        return measure
    module, _, name = measure.partition(":")
    return cast(Measure, getattr(import_module(module), name))


def _table(numbers: Iterable[Number], seed: int) -> pd.DataFrame:
    rows = [
        {
            "source": "measured",
            "quantity": QUANTITY,
            "name": number.name,
            "value": float(number.value),
            "status": "ok" if math.isfinite(number.value) else "nonfinite",
            "step": 0,
            **_cell(number),
            "data": QUANTITY,
            "model_seed": seed,
            "data_seed": _DATA_SEED_OFFSET + seed,
            **number.columns,
        }
        for number in numbers
    ]
    return ordered(normalise(pd.DataFrame(rows)))


def _cell(number: Number) -> dict[str, object]:
    nothing: dict[str, object] = dict.fromkeys(CELL_COLUMNS)
    model = {} if number.spec is None else number.spec.columns()
    return nothing | {"depth": 0, "width": 0, "tokens": 0} | model


def unique(evidence: Iterable[Evidence]) -> Iterator[Evidence]:
    """Yield each computation once."""
    yield from dict.fromkeys(evidence)
