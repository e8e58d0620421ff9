"""Two tables before they are compared: what they must have, and where neither has a number."""

from collections.abc import Iterator
from typing import Final

import pandas as pd

from normlab.errors import DataError
from normlab.inspection.diverging import Broken
from normlab.inspection.finding import place
from normlab.recording import Address
from normlab.table import COLUMNS

_PLACE: Final = ["stack", "layer", "sublayer"]


def check_table(table: pd.DataFrame, name: str) -> None:
    """Refuse what is no table of measurements.

    Raises:
        DataError: it lacks columns or rows.
    """
    if not isinstance(table, pd.DataFrame):
        raise DataError(f"{name} is {type(table).__name__} and not a table of normlab: give what normlab wrote")
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise DataError(f"{name} is not a table of normlab: it has no column {missing[0]!r}; give what normlab wrote")
    if table.empty:
        raise DataError(f"{name} has no rows: give the table of a run, or a --where that leaves some")


def check_streams(a: pd.DataFrame, b: pd.DataFrame) -> None:
    """Refuse streams that only one of two tables has: to say that the rest agrees would hide them.

    Raises:
        DataError: one has a number where the other has none, or no stack is in both.
    """
    states = _states(a), _states(b)
    if not all(len(state) for state in states):
        return
    stacks = [list(state.index.unique("stack")) for state in states]
    if not set(stacks[0]) & set(stacks[1]):
        one, other = (" and ".join(name or "no stack" for name in names) for names in stacks)
        raise DataError(f"A's streams are of {one}, B's of {other}: compare runs whose stacks have the same names")
    both = pd.concat(states, axis=1, keys=["A", "B"]).sort_index(level="layer", kind="stable", sort_remaining=False)
    for key, row in both.iterrows():
        for side, other, table in (("A", "B", a), ("B", "A", b)):
            if row[other] == "ok" and row[side] != "ok":
                raise DataError(_lacks(side, other, _address(key), str(row[side]), _odd_entries(table, key)))


def _lacks(side: str, other: str, at: Address, status: str, entries: int) -> str:
    if status == "nonfinite":
        return (
            f"the stream of {side} is not finite after {place(at)} ({entries} entries), the first place, and that of "
            f"{other} is: choose rows before it with --where, as 'layer < {at.layer}'"
        )
    if status == "nan":
        return (
            f"{other} has a stream after {place(at)} and {side} has none: compare models of one depth, or choose rows "
            "that both have with --where"
        )
    return f"the stream of {side} has no number after {place(at)} ({status}) and that of {other} has: compare others"


def broken_in_both(a: pd.DataFrame, b: pd.DataFrame) -> Iterator[Broken]:
    """Yield the places where the streams of both tables are not finite: they have no ratio."""
    both = pd.concat([_states(a), _states(b)], axis=1, keys=["A", "B"])
    for key in both.index[(both == "nonfinite").all(axis=1)]:
        yield Broken(_address(key), _odd_entries(a, key), _odd_entries(b, key))


def _states(table: pd.DataFrame) -> pd.Series:
    """Return for each place of a stream ``ok``, or why one of its seeds has no number."""
    rows = _of_streams(table, "median_rms")
    worst = rows.assign(bad=rows["status"] != "ok").sort_values("bad", kind="stable")
    states: pd.Series = worst.groupby(_PLACE, sort=False)["status"].last()
    return states


def _odd_entries(table: pd.DataFrame, key: object) -> int:
    rows = _of_streams(table, "nonfinite").set_index(_PLACE)["value"]
    return int(rows[rows.index == key].sum())


def _of_streams(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    chosen = (table["site"] == "stream") & (table["quantity"] == quantity) & (table["source"] == "measured")
    rows = table.loc[chosen & table["layer"].notna(), [*_PLACE, "value", "status"]]
    text = {name: rows[name].astype(str) for name in ("stack", "sublayer", "status")}
    return rows.assign(**text, layer=rows["layer"].astype(int))


def _address(key: object) -> Address:
    assert isinstance(key, tuple)
    return Address(key[0], key[1], key[2], "stream")


def only_one(a: pd.DataFrame, b: pd.DataFrame) -> tuple[str, ...]:
    """Say of which of two runs gradients were taken, if of one alone."""
    taken = [_has_gradients(table) for table in (a, b)]
    if taken[0] == taken[1]:
        return ()
    return (f"{'A' if taken[0] else 'B'} alone has gradients: none are compared.",)


def _has_gradients(table: pd.DataFrame) -> bool:
    gradients = table["site"].astype(str).str.endswith("_grad") | (table["quantity"].astype(str) == "grad_norm")
    measured = table["value"].notna() | (table["status"].astype(str) == "nonfinite")
    return bool((gradients & measured & (table["source"].astype(str) == "measured")).any())


def with_dtypes(names: tuple[str, str], a: pd.DataFrame, b: pd.DataFrame) -> tuple[str, str]:
    """Return the names of two runs, followed by the dtypes of their streams where these differ."""
    one, two = (_dtypes(table) for table in (a, b))
    if one == two or not one or not two:
        return names
    return f"{names[0]} ({one})", f"{names[1]} ({two})"


def _dtypes(table: pd.DataFrame) -> str:
    found = table.loc[table["site"].astype(str) == "stream", "dtype"].dropna().astype(str)
    return " and ".join(sorted({*found} - {""}))
