"""Sentences that state what a plot shows, from the same points that it draws."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd

from normlab.digits import number

#: More kinds of models than this are summed up instead of listed.
LISTED: Final = 4


def change(path: Sequence[float], at: Sequence[int] = (), unit: str = "layer") -> str:
    """Say how a scale goes along ``path``, from its first value to its last, and where it lies outside them.

    Args:
        path: the values.
        at: the layer of each.
        unit: what ``at`` is.
    """
    first, last = path[0], path[-1]
    known = [value for value in path if np.isfinite(value)]
    ends = f"from {number(first)} to {number(last)}"
    if not known:
        return "has no finite value"
    if not (np.isfinite(first) and np.isfinite(last)) or first <= 0 or last <= 0:
        return f"goes {ends}"
    if max(known) <= 1.05 * min(known):
        lowest, highest = number(min(known)), number(max(known))
        return f"stays at {lowest}" if lowest == highest else f"stays between {lowest} and {highest}"
    return f"{_ratio(last / first)} ({ends}{_detour(path, at, unit)})"


def _ratio(ratio: float) -> str:
    if 0.95 < ratio < 1.05:
        return "ends within 5 % of where it starts"
    if 2 / 3 < ratio < 1.5:
        return f"{'grows' if ratio > 1 else 'falls'} by {abs(ratio - 1):.0%}".replace("%", " %")
    return f"grows {number(ratio)}-fold" if ratio > 1 else f"falls {number(1 / ratio)}-fold"


def _detour(path: Sequence[float], at: Sequence[int], unit: str) -> str:
    """Name the extremes on the way, where they lie clearly outside the ends."""
    ends, values = (path[0], path[-1]), np.asarray(path, dtype=float)
    values = np.where(np.isfinite(values), values, np.nan)
    found = []
    for verb, place, beyond in (
        ("down", int(np.nanargmin(values)), bool(np.nanmin(values) < 0.8 * min(ends))),
        ("up", int(np.nanargmax(values)), bool(np.nanmax(values) > 1.25 * max(ends))),
    ):
        where = f" at {unit} {at[place]}" if len(at) else " on the way"
        found += [f"{verb} to {number(float(values[place]))}{where}"] if beyond else []
    return f", {' and '.join(found)}" if found else ""


def paths(placed: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield, for each kind of model, the points of its deepest model in the order of the layers."""
    measured = placed[placed["source"] == "measured"]
    for panel in measured["panel"].unique():
        rows = measured[measured["panel"] == panel]
        yield str(panel), rows[rows["depth"] == rows["depth"].max()].sort_values("layer", kind="stable")


def profile_finding(
    placed: pd.DataFrame,
    what: str,
    says: Callable[[Sequence[float], Sequence[int]], str] = change,
    *,
    ratios: bool = True,
) -> str:
    """Say for each kind of model how ``what`` goes from the first to the last layer of its deepest model.

    Many kinds are summed up: by the ratio of the last layer to the first, or where a ratio means nothing by the last.
    """
    found = dict(paths(placed))
    if len(found) > LISTED:
        return _summed_up(found, what, ratios)
    clauses: dict[str, list[str]] = {}
    for panel, rows in found.items():
        clauses.setdefault(_reach(rows), []).append(f"{_said(rows, says)}{f' in {panel}' if panel else ''}")
    return sentence("; ".join(f"{reach}, {what} {'; '.join(said)}" for reach, said in clauses.items()))


def sentence(text: str) -> str:
    """Return ``text`` as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def _reach(rows: pd.DataFrame) -> str:
    first, last = rows.iloc[0], rows.iloc[-1]
    return f"from layer {first['layer']} to layer {last['layer']} of {last.get('stack_depth', last['depth'])}"


def _said(rows: pd.DataFrame, says: Callable[[Sequence[float], Sequence[int]], str]) -> str:
    lost = int(rows["centre"].isna().sum())
    if lost == len(rows):
        return "has no finite value"
    gap = f" ({lost} of {len(rows)} layers have no finite value)" if lost else ""
    return f"{says(rows['centre'].tolist(), rows['layer'].astype(int).tolist())}{gap}"


def _summed_up(found: dict[str, pd.DataFrame], what: str, ratios: bool) -> str:
    ends = {panel: (float(rows["centre"].iloc[0]), float(rows["centre"].iloc[-1])) for panel, rows in found.items()}
    values = {panel: last / first if ratios else last for panel, (first, last) in ends.items()}
    known = {panel: value for panel, value in values.items() if np.isfinite(value)}
    lost = len(found) - len(known)
    tail = f"; {lost} of them have no finite value there" if lost else ""
    if not known:
        return f"Of {len(found)} curves none has a finite value of {what} in its last layer."
    least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return (
        f"Over {len(found)} curves, {what} in the last layer of the deepest model is between "
        f"{number(known[least])} ({least}) and {number(known[most])} ({most})"
        f"{' times that in the first' if ratios else ''}{tail}."
    )
