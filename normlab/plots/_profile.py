"""The drawing that every plot against the layer shares."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from normlab.plots._aggregate import Average
from normlab.plots._curves import curves, points
from normlab.plots._paint import add_legend, dress, marked, new_axes, paint
from normlab.plots._rows import Rows
from normlab.plots._style import BESIDE


def profile(
    table: pd.DataFrame,
    needs: Rows,
    ylabel: str,
    *,
    ax: Axes | None,
    x: str,
    theory: pd.DataFrame | None,
    depths: Sequence[int] | None,
    legend: bool,
    average: Average = "geometric",
) -> Axes:
    """Draw the rows ``needs`` against the layer, a line a depth with its band over seeds; return the axes.

    A quantity that is averaged geometrically has a logarithmic axis.
    """
    placed = points(table, needs, average, x=x, theory=theory)
    ax = ax or new_axes()
    dress(ax, placed, x, ylabel, log=average == "geometric")
    paint(ax, placed, depths)
    if legend:
        add_legend(ax)
    return ax


def beside(ax: Axes, table: pd.DataFrame, needs: Rows, label: str, x: str) -> None:
    """Draw the rows ``needs`` of one model beside the line of all entries, where the table has them."""
    if needs.missing(table):
        return
    for line in ax.get_lines():
        if str(line.get_label()).isdigit():
            line.set_label("all entries")
    for curve in curves(points(table, needs, "geometric", x=x)):
        at = curve.points["x"].to_numpy()
        ax.plot(
            at,
            curve.points["centre"].to_numpy(),
            color=BESIDE.color,
            linestyle=BESIDE.dash,
            marker=BESIDE.marker,
            markevery=marked(ax, at, 0.5),
            linewidth=1.6,
            markersize=4.2,
            label=label,
        )
