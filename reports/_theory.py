"""The section on theory: what the dots in the figures are, and where measurement leaves them."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from normlab.digits import cell, minus
from normlab.plots._panels import label_rows, panel_columns, sublayer_words
from normlab.theory import departures
from normlab.theory.beside import Beside
from normlab.theory.departures import DIFFERENCES

#: More curves than this are counted, not listed.
_MOST: Final = 40


@dataclass(frozen=True)
class Departure:
    """A curve that leaves theory, as the page shows it.

    Attributes:
        model: the kind of model.
        depth: the deepest model in which it does.
        others: the other depths.
        curve: quantity, site or role, and sub-layer.
        layers: where it does in the deepest model.
        change: measured over theory, or their difference.
        spreads: the same in standard deviations over seeds.
    """

    model: str
    depth: str
    others: str
    curve: str
    layers: str
    change: str
    spreads: str


@dataclass(frozen=True)
class TheoryView:
    """The section on theory.

    Attributes:
        sayings: what theory stands on, and where there is none.
        curves: number of curves that were compared.
        seeds: seeds of each, at most.
        rows: those that leave theory, the clearest first.
        left_out: how many more do.
        nearest: the one that is furthest from theory of those that may be chance.
    """

    sayings: tuple[str, ...]
    curves: int
    seeds: int
    rows: tuple[Departure, ...]
    left_out: int
    nearest: Departure | None


def theory_view(table: pd.DataFrame, beside: Beside) -> TheoryView:
    """Compare ``table`` with the predictions for it."""
    if not beside.cases or beside.table.empty or not (beside.table["status"] == "ok").any():
        return TheoryView(beside.sayings, 0, 0, (), 0, None)
    found = departures(table, beside.table)
    names = [name for name in panel_columns(table[table["source"] == "measured"]) if name in beside.table.columns]
    rows, nearest = (_curves(one, names) for one in (found.rows, found.nearest))
    seeds = table["model_seed"].nunique() if "model_seed" in table.columns else 1
    left_out = max(len(rows) - _MOST, 0)
    return TheoryView(beside.sayings, found.curves, seeds, rows[:_MOST], left_out, nearest[0] if nearest else None)


def _curves(rows: pd.DataFrame, names: list[str]) -> tuple[Departure, ...]:
    """One line a curve and direction: its deepest model, and at which other depths it leaves theory too."""
    names = [name for name in names if name != "stack" and name in rows.columns]
    labelled = rows.assign(model=label_rows(rows, names), up=rows["change"] > 0)
    by = ["model", "stack", "sublayer", "site", "quantity", "role", "up"]
    groups = labelled.groupby(by, sort=False, dropna=False, observed=True)
    return tuple(_curve(group) for _, group in groups)


def _curve(group: pd.DataFrame) -> Departure:
    deepest = group[group["depth"] == group["depth"].max()].sort_values("first")
    row = deepest.iloc[(deepest["change"].abs() / deepest["spread"]).to_numpy().argmax()]
    others = sorted({int(depth) for depth in group["depth"]} - {int(row["depth"])})
    spread = float(row["spread"])
    return Departure(
        model=str(row["model"]),
        depth=f"{row['depth']}",
        others=", ".join(map(str, others)),
        curve=_name(row),
        layers=", ".join(_layers(int(one.first), int(one.last)) for one in deepest[["first", "last"]].itertuples()),
        change=_change(float(row["change"]), str(row["quantity"])),
        spreads=_times(abs(float(row["change"])) / spread) if spread > 0 else "∞",
    )


def _name(row: Any) -> str:
    what = f"{row['quantity']} of role {row['role']}" if row["role"] else f"{row['quantity']} at {row['site']}"
    if not row["site"] and not row["role"]:
        return str(row["quantity"])
    return f"{what}, {sublayer_words(str(row['sublayer']))}"


def _layers(first: int, last: int) -> str:
    if last < 0:
        return "–"
    return f"{first}" if first == last else f"{first}–{last}"


def _times(spreads: float) -> str:
    return f"{spreads:.1f}" if spreads < 10 else f"{spreads:.0f}"


def _change(change: float, quantity: str) -> str:
    if quantity in DIFFERENCES:
        return minus(f"{change:+.3f}")
    return f"{cell(float(np.exp(change)))} ×"
