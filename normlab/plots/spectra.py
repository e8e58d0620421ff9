"""The largest singular values of each block's Jacobian against depth."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd
from matplotlib.axes import Axes

from normlab.plots._curves import points
from normlab.plots._jacobian_rows import MapRows
from normlab.plots._paint import add_legend, dress, new_axes, paint
from normlab.plots._style import SOFT
from normlab.plots._words import profile_finding
from normlab.plots.exponents import at_streams
from normlab.plots.plot import Plot

LARGEST: Final = MapRows("singular_value", name="001")


def singular_values(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the largest singular value of each block's Jacobian against its layer, and faintly the ones below it.

    The line is the largest, a line a depth with its band over seeds; the others are drawn for the deepest model
    of each kind. Layer ℓ is where the block's map starts.

    Args:
        table: a table with rows of ``singular_value`` from each layer to the next.
        ax: where to draw; a new figure unless given.
        x: ``layer``, ``fraction`` (ℓ/L) or ``q`` (the stream's mean square at ℓ).
        theory: a table of predictions, drawn as a line of its own.
        depths: all depths of which a common legend speaks, where several axes share one.
        legend: whether to put a legend beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    placed = at_streams(points(table, LARGEST, "geometric", x=x, theory=theory), table, x)
    ax = ax or new_axes()
    dress(ax, placed, x, "singular values of a block's Jacobian\n(unit of its output per unit of its input)", log=True)
    for place, line in enumerate(_below(table, x)):
        label = "next largest, deepest model" if place == 0 else "_"
        ax.plot(line["x"], line["centre"], color=SOFT, linewidth=0.6, alpha=0.7, zorder=1, label=label)
    paint(ax, placed, depths)
    if legend:
        add_legend(ax)
    return ax


def _below(table: pd.DataFrame, x: str) -> Iterator[pd.DataFrame]:
    """Yield a line for each further singular value of the deepest model of each kind."""
    rows = table[(table["quantity"] == "singular_value") & (table["source"] == "measured")]
    names = sorted(str(name) for name in rows["name"].unique() if str(name).isdigit() and str(name) != LARGEST.name)
    for name in names:
        needs = replace(LARGEST, name=name)
        if needs.missing(rows):
            continue
        placed = at_streams(points(table, needs, "geometric", x=x), table, x)
        for panel in placed["panel"].unique():
            line = placed[placed["panel"] == panel]
            yield line[line["depth"] == line["depth"].max()].sort_values("layer", kind="stable")


SINGULAR_VALUES: Final = Plot(
    of="jacobian",
    note="Layer 0: the map of the first block.",
    name="singular_values",
    title="Singular values of each block",
    explains="The largest singular value of the map from layer ℓ to layer ℓ + 1, over all tokens at once: the most "
    "that a block can stretch any change of its input.",
    function=singular_values,
    needs=LARGEST,
    average="geometric",
    finding=lambda table: profile_finding(points(table, LARGEST, "geometric"), "the largest singular value of a block"),
)
