"""Theory for a table of measurements: the same models, on the same batches where they can be drawn again."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from normlab.data import Random, Text
from normlab.table import concat
from normlab.theory.batches import geometry_of
from normlab.theory.cases import Case, cases
from normlab.theory.prediction import predicted_rows
from normlab.theory.rows import Row, table_of

#: Changes whenever predictions do, so that kept ones are made anew.
VERSION = 5


def beside(table: pd.DataFrame, source: Text | Random | None = None) -> pd.DataFrame:
    """Predict what was measured in ``table``.

    Args:
        table: the table of a sweep, whose columns say which models were measured and on which batches.
        source: what the batches were drawn from, where the column ``data`` does not say it (a text of your own).

    Returns:
        A table with ``source`` ``theory`` and the columns of the measured cells; ``data_seed`` says whose batch a row
        is for, and is empty for random tokens in place of a batch that cannot be drawn again. It has no rows where
        ``table`` does not say which models it is of.
    """
    return predicted(cases(table, source))


def predicted(found: Sequence[Case]) -> pd.DataFrame:
    """Return the predictions of ``found`` as one table."""
    return concat(_predicted(case) for case in found)


def identity(found: Sequence[Case]) -> str:
    """Return sixteen hexadecimal digits that hash what the predictions of ``found`` depend on."""
    asked = [(sorted(case.columns.items(), key=str), case.data_seed, repr(case.source), case.reason) for case in found]
    return hashlib.sha256(repr((VERSION, asked)).encode()).hexdigest()[:16]


def _predicted(case: Case) -> pd.DataFrame:
    columns = {**case.columns, **({} if case.data_seed is None else {"data_seed": case.data_seed})}
    if case.spec is None:
        return table_of([{"status": f"no theory: {case.reason}"}], columns)
    batch = int(case.columns["batch"]) if case.source is None else case.source.draw(case.data_seed or 0)
    pairs = geometry_of(case.spec, batch, int(case.columns["tokens"]))
    rows = predicted_rows(case.spec, pairs, jacobian=False)
    if columns.get("loss") not in (None, "cross-entropy"):
        rows = [found for found in rows if not _of_loss(found)]
    return table_of(rows, columns)


def _of_loss(found: Row) -> bool:
    """Whether a row is about the loss, or a gradient of it."""
    return found.get("quantity") in ("loss", "grad_norm") or str(found.get("site", "")).endswith("_grad")


@dataclass(frozen=True, eq=False)
class Beside:
    """Predictions for a table, and what they stand on.

    Attributes:
        cases: what was asked for.
        table: the predictions.
    """

    cases: tuple[Case, ...]
    table: pd.DataFrame

    @property
    def sayings(self) -> tuple[str, ...]:
        """In words: which batches the predictions are for, and where there is none."""
        if not self.cases:
            return ("There is no theory beside these curves: the table does not say which models they are of.",)
        return tuple(sentence for sentence in (_batches(self.cases), *_without(self.table)) if sentence)


def _batches(found: Sequence[Case]) -> str:
    seeds = sorted({case.data_seed for case in found if case.data_seed is not None})
    random = any(case.source is None and case.spec is not None for case in found)
    parts = []
    if seeds:
        listed = ", ".join(map(str, seeds[:6])) + (f" … {seeds[-1]}" if len(seeds) > 6 else "")
        word, what = ("batch", "seed") if len(seeds) == 1 else ("batches", "seeds")
        parts.append(f"Theory is that of the very {word} that data {what} {listed} drew.")
    if random:
        parts.append("The batches cannot be drawn again, so theory is that of random tokens.")
    return " ".join(parts)


def _what(rows: pd.DataFrame) -> str:
    """What rows without a value are about."""
    roles = ", ".join(dict.fromkeys(str(role) for role in rows["role"] if role))
    if roles:
        return f"nothing on the gradients of {roles} in {rows['layer'].nunique()} layers"
    return "nothing" if (rows["quantity"] == "").all() else "no gradients"


def _without(table: pd.DataFrame) -> list[str]:
    """One sentence for each reason for which a kind of model, or a part of it, has no theory."""
    lost = table[table["status"].astype(str).str.startswith("no theory")]
    said = []
    for status in dict.fromkeys(lost["status"].astype(str)):
        rows = lost[lost["status"].astype(str) == status]
        said.append(f"{_which(rows, table)}: theory says {_what(rows)} ({status.removeprefix('no theory: ')}).")
    return said


def _which(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Which models rows are of: their placements, each with its depths where there are others."""
    if "placement" not in rows:
        return "the model"
    names = []
    for name in dict.fromkeys(rows["placement"].astype(str)):
        found, known = (
            sorted(frame.loc[frame["placement"].astype(str) == name, "depth"].dropna().unique())
            for frame in (rows, table)
        )
        names.append(name if found == known else f"{name} at depth {', '.join(map(str, found))}")
    return "; ".join(name for name in names if name) or "the model"
