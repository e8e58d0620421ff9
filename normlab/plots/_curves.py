"""From a table to the points of a plot: one row a point, with its place on the x axis."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import pandas as pd

from normlab.errors import DataError, suggest
from normlab.plots._aggregate import Average, aggregate
from normlab.plots._panels import label_rows, panel_columns
from normlab.plots._rows import Rows, own_depth, with_depth

XAxis: TypeAlias = Literal["layer", "fraction", "q"]

#: Where q comes from: the mean square of the stream after the sub-layer.
STREAM_Q: Final = Rows("mean_square", site="stream", sublayers=("embed", "attn", "cross", "mlp"))


@dataclass(frozen=True)
class Curve:
    """The points of one line.

    Attributes:
        panel: the kind of model, in words.
        depth: its number of blocks.
        source: ``measured`` or ``theory``.
        points: columns ``x``, ``centre``, ``low``, ``high``, ``nonfinite``, ``zeros`` and more, in the order of x.
    """

    panel: str
    depth: int
    source: str
    points: pd.DataFrame


def points(
    table: pd.DataFrame,
    needs: Rows,
    average: Average,
    *,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return one row a point: its cell's columns, ``panel``, ``depth``, ``layer``, ``x`` and the mean over seeds.

    Raises:
        DataError: the table lacks the rows, or ``x`` is not an axis.
    """
    if x not in get_args(XAxis):
        raise DataError(f"a plot has no x axis {x!r}: choose layer, fraction or q{suggest(x, get_args(XAxis))}")
    reason = needs.missing(table)
    if reason:
        raise DataError(reason)
    rows = needs.select(table)
    names = panel_columns(rows[rows["source"] == "measured"] if (rows["source"] == "measured").any() else rows)
    own = own_depth(rows)
    apart = ["stack_depth"] if (own != rows["depth"]).any() else []
    by = ["source", *names, "depth", *apart, "layer", "sublayer"]
    found = aggregate(rows.assign(stack_depth=own), by, average)
    if theory is not None:
        found = pd.concat([found, _predicted(theory, needs, found, names, by)], ignore_index=True)
    placed = found.assign(x=_places(table, found, names, x))
    panels = label_rows(placed, [*names, *(["sublayer"] if needs.apart and _several(placed) else [])])
    return placed.assign(panel=panels)


def _several(placed: pd.DataFrame) -> bool:
    return bool(placed["sublayer"].nunique() > 1)


def _predicted(theory: pd.DataFrame, needs: Rows, found: pd.DataFrame, names: list[str], by: list[str]) -> pd.DataFrame:
    """Theory's rows as points; where it does not say for which kind of model, it is drawn for all of them."""
    chosen = needs.select(theory)
    rows = chosen.assign(source="theory", stack_depth=own_depth(chosen))
    absent = [name for name in names if name not in rows.columns]
    if absent:
        rows = rows.merge(found[absent].drop_duplicates(), how="cross")
    return aggregate(rows, by, "arithmetic")


def _places(table: pd.DataFrame, found: pd.DataFrame, names: list[str], x: str) -> pd.Series:
    if x == "layer":
        return found["layer"].astype("float64")
    if x == "fraction":
        return found["layer"].astype("float64") / found.get("stack_depth", found["depth"]).astype("float64")
    reason = STREAM_Q.missing(table)
    if reason:
        raise DataError(f"x = q needs the stream's mean square, and {reason}")
    by = [name for name in (*names, "depth", "layer", "sublayer") if name in found.columns]
    rows = with_depth(table, STREAM_Q.select(table))
    q = aggregate(rows[rows["source"] == "measured"], by, "geometric").rename(columns={"centre": "q"})
    merged = found[by].merge(q[[*by, "q"]], on=by, how="left")
    return pd.Series(merged["q"].to_numpy(dtype="float64"), index=found.index)


def curves(placed: pd.DataFrame) -> Iterator[Curve]:
    """Yield the lines of :func:`points`, panel by panel, the deepest model first so that shorter ones stay visible."""
    for panel in placed["panel"].unique():
        rows = placed[placed["panel"] == panel]
        for depth in sorted(rows["depth"].unique(), reverse=True):
            for source in ("measured", "theory"):
                line = rows[(rows["depth"] == depth) & (rows["source"] == source)]
                if len(line):
                    yield Curve(str(panel), int(depth), source, line.sort_values(["layer"], kind="stable"))
