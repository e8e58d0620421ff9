"""From a table to the points of a plot: one row a point, with its place on the x axis."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from normlab.errors import DataError, suggest
from normlab.plots._aggregate import Average, aggregate
from normlab.plots._panels import label_rows, panel_columns
from normlab.plots._rows import Rows, own_depth, with_depth
from normlab.table import CELL_COLUMNS

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
            Theory's ``low`` and ``high`` lie one standard deviation of a seed away.
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
        expected = _predicted(_of_same_cells(needs.select(theory), rows), found, names, by, average)
        found = pd.concat([found, expected], ignore_index=True) if len(expected) else found
    placed = found.assign(x=_places(table, found, names, x))
    panels = label_rows(placed, [*names, *(["sublayer"] if needs.apart and _several(placed) else [])])
    return placed.assign(panel=panels)


def _several(placed: pd.DataFrame) -> bool:
    return bool(placed["sublayer"].nunique() > 1)


def _of_same_cells(theory: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Return theory's rows for the models of ``measured``, by the columns in which it says what model it is of.

    A model with two stacks has two curves, which may stand in panels of their own.
    """
    common = [name for name in CELL_COLUMNS if name in theory.columns and name in measured.columns]
    common += ["stack"] if all("stack" in frame and _says(frame["stack"]) for frame in (theory, measured)) else []
    common = [name for name in common if not name.endswith("_seed") and _says(theory[name])]
    if not common or theory.empty:
        return theory
    wanted = _kinds(measured, common)
    cells = theory.groupby(common, observed=True, dropna=False, sort=False).ngroup()
    own = _kinds(theory, common)
    return theory[cells.isin([place for place, kind in enumerate(own) if kind in wanted])]


def _kinds(frame: pd.DataFrame, names: list[str]) -> list[tuple[str, ...]]:
    """Each kind of model once, in the order of the rows, as text."""
    rows = frame[names].drop_duplicates().itertuples(index=False, name=None)
    return [tuple("" if pd.isna(value) else str(value) for value in row) for row in rows]


def _says(column: pd.Series) -> bool:
    return bool((column.notna() & (column.astype(str) != "")).any())


def _predicted(
    theory: pd.DataFrame, found: pd.DataFrame, names: list[str], by: list[str], average: Average
) -> pd.DataFrame:
    """Theory's rows as points; where it does not say for which kind of model, it is drawn for all of them."""
    rows = theory.assign(source="theory", stack_depth=own_depth(theory))
    absent = [name for name in names if name not in rows.columns or not _says(rows[name])]
    if absent:
        rows = rows.drop(columns=absent, errors="ignore").merge(found[absent].drop_duplicates(), how="cross")
    return _with_spread(aggregate(rows, by, average), rows, by, average)


def _with_spread(expected: pd.DataFrame, rows: pd.DataFrame, by: list[str], average: Average) -> pd.DataFrame:
    """Bound each point by one standard deviation over seeds: that of the weights, and that of the batches."""
    logs = np.log(rows["value"].where(rows["value"] > 0))
    squares = rows[by].assign(own=rows["sd_log"] ** 2, log=logs).groupby(by, observed=True, dropna=False, sort=False)
    between = squares["log"].var().fillna(0.0)
    sd = np.sqrt(squares["own"].mean() + between).reset_index(name="sd")["sd"].to_numpy(dtype="float64")
    if average == "arithmetic":
        sd = np.full_like(sd, np.nan)
    centre = expected["centre"].to_numpy(dtype="float64")
    return expected.assign(low=centre * np.exp(-sd), high=centre * np.exp(sd))


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
