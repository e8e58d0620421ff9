"""The drawing that every plot against the layer shares."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from normlab.plots._aggregate import Average
from normlab.plots._curves import points
from normlab.plots._paint import add_legend, dress, new_axes, paint
from normlab.plots._rows import Rows


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
