"""A plot as data: what it draws, from which rows, and the sentence that says what it shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import pandas as pd
from matplotlib.axes import Axes

from normlab.plots._aggregate import LEVEL, Average
from normlab.plots._curves import STREAM_Q, points
from normlab.plots._paint import told_apart
from normlab.plots._rows import Rows, with_depth
from normlab.vocabulary import COMPARED

#: Where a plot's rows come from: a recording, Jacobians, a comparison of two; or one matrix that is in no table.
Origin: TypeAlias = Literal["recording", "jacobian", "comparison", "matrix"]

_QUANTITIES: Final[Mapping[Origin, frozenset[str]]] = {
    "jacobian": frozenset({"apjn", "singular_value", "lyapunov"}),
    "comparison": frozenset(quantity.name for quantity in COMPARED),
}


def origins(table: pd.DataFrame) -> set[Origin]:
    """Return where the rows of ``table`` come from."""
    names = {str(name) for name in table["quantity"].unique()}
    found: set[Origin] = {origin for origin, own in _QUANTITIES.items() if names & own}
    return found | ({"recording"} if names - frozenset().union(*_QUANTITIES.values()) else set())


@dataclass(frozen=True)
class Plot:
    """One way to look at a table.

    Attributes:
        name: how claims, commands and files name it.
        title: its heading.
        explains: what the quantity is and what to look for, in one sentence.
        function: the axes-level drawing function, ``f(table, *, ax=None, x="layer", theory=None, ...) -> Axes``.
        needs: the rows that it draws.
        average: the mean over seeds, geometric (of logarithms) or arithmetic.
        finding: states in one sentence, with numbers, what the plot of a table shows.
        panels: every kind of model has a panel of its own; otherwise all share one.
        of: where its rows come from.
        also: further quantities at the same site that it draws where they are there.
        note: what must be known to read it, in a sentence under it.
    """

    name: str
    title: str
    explains: str
    function: Callable[..., Axes]
    needs: Rows
    average: Average
    finding: Callable[[pd.DataFrame], str]
    panels: bool = True
    of: Origin = "recording"
    also: tuple[str, ...] = ()
    note: str = ""

    def missing(self, table: pd.DataFrame) -> str:
        """Say in one sentence why ``table`` cannot be drawn, or return an empty string."""
        return self.needs.missing(table)

    def each(self, table: pd.DataFrame) -> list["Plot"]:
        """Return this plot and, for each further quantity that it draws of ``table``, one of that quantity alone."""
        others = (
            replace(
                self,
                name=f"{self.name}.{quantity}",
                title=f"{self.title}, {quantity}",
                needs=replace(self.needs, quantity=quantity),
                also=(),
            )
            for quantity in self.also
        )
        return [self, *(one for one in others if not one.missing(table))]

    def relevant(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the few rows of a large table that the plot, its x axis and its fits can need."""
        stream = (table["site"] == STREAM_Q.site) & (table["quantity"] == STREAM_Q.quantity)
        own = (table["site"] == self.needs.site) & table["quantity"].isin([self.needs.quantity, *self.also])
        rows = with_depth(table, table[stream | own & (table["role"] == self.needs.role)])
        return rows.reset_index(drop=True)

    def aggregated(self, table: pd.DataFrame, theory: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the points of the plot: one row a point, with the mean over seeds, its interval and the counts.

        Args:
            table: the measurements.
            theory: a table of predictions, whose points follow.

        Raises:
            DataError: the table lacks the rows.
        """
        return points(table, self.needs, self.average, theory=theory)

    def caption(self, table: pd.DataFrame) -> str:
        """Say what the lines and bands are.

        Raises:
            DataError: the table lacks the rows.
        """
        return self.describe(self.aggregated(table))

    def describe(self, placed: pd.DataFrame) -> str:
        """Say how seeds became the lines and bands of the points ``placed``, and what layer 0 is."""
        words = _spread(placed, self.average, *(("line", "band") if self.panels else ("points", "bars")))
        said = [
            words if self.of != "comparison" else "",
            _gaps(placed, seeds=self.of != "comparison"),
            _theory(placed, self.panels),
            "Layer 0: the embedding." if _starts_at_embedding(placed) else "",
            self.note,
        ]
        return " ".join(words for words in said if words)


def _starts_at_embedding(placed: pd.DataFrame) -> bool:
    return bool(((placed["sublayer"] == "embed") & (placed["x"] == 0)).any())


def _spread(placed: pd.DataFrame, average: Average, centre: str, interval: str) -> str:
    measured = placed[placed["source"] == "measured"]
    seeds = sorted({int(count) for count in measured["seeds"] if count})
    if not seeds:
        return "No point has a finite value."
    if seeds[-1] == 1 and measured["estimated"].any():
        return f"{centre.capitalize()}: one seed; {interval}: two standard errors of its estimate from random vectors."
    if seeds[-1] == 1:
        return f"One seed, so no {interval}."
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    of = "geometric mean" if average == "geometric" else "mean"
    inside = "mean logarithm" if average == "geometric" else "mean"
    around = f"{100 * LEVEL:.0f} % Student t interval of the {inside}"
    return f"{centre.capitalize()}: {of} over {count} seeds; {interval}: {around}."


def _gaps(placed: pd.DataFrame, *, seeds: bool) -> str:
    """Say which points, and of how many, have no place on the axis; they are marked at its edges."""
    placed = placed[placed["source"] == "measured"]
    hidden = placed[placed["centre"].isna()]
    broken, zero = int((hidden["nonfinite"] > 0).sum()), int((hidden["zeros"] > 0).sum())
    found = {mark: count for mark, count in {"×: {}not finite": broken, "▾: {}exactly zero": zero}.items() if count}
    if not seeds:  # several lines are drawn, and these are the points of one
        return " ".join(f"{mark.format('')}." for mark in found)
    return " ".join(f"{mark.format('a seed is ')} ({count} of {len(placed)} points)." for mark, count in found.items())


def _theory(placed: pd.DataFrame, panels: bool) -> str:
    """Say what theory's dots and thin lines are."""
    expected = placed[placed["source"] == "theory"]
    if not expected["centre"].notna().any():
        return ""
    several = panels and expected["depth"].nunique() > 1
    drawn = sorted({depth for panel in expected["panel"].unique() for depth in told_apart(placed, str(panel))})
    named = f", of L = {', '.join(map(str, drawn[:-1]))} and {drawn[-1]} as named at their ends" if drawn else ""
    if not expected["low"].notna().any():
        return f"Dots: theory{named}."
    whose = " for the deepest model" if several else ""
    return f"Dots: theory{named}; thin lines: one standard deviation of a seed away{whose}."
