"""How much a random tangent vector grows in each block, beside what theory expects."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from normlab.digits import minus, number
from normlab.plots._aggregate import aggregate
from normlab.plots._curves import STREAM_Q, points
from normlab.plots._jacobian_rows import MapRows
from normlab.plots._paint import add_legend, dress, new_axes, paint
from normlab.plots._rows import with_depth
from normlab.plots._words import profile_finding
from normlab.plots.plot import Plot

EXPONENTS: Final = MapRows("lyapunov")
_YLABEL: Final = "exponent λ of a block\n(nats per block)"


def layer_exponents(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw λ_ℓ = ½ ln(‖∂x_{ℓ+1}/∂x_ℓ‖²_F/(n d)) against ℓ, a line a depth, with theory where there is one.

    0: a block changes the length of tangent vectors by nothing, on average. Pre-LN falls like 1/(2ℓ).

    Args:
        table: a table with rows of ``lyapunov`` from each layer to the next.
        ax: where to draw; a new figure unless given.
        x: ``layer``, ``fraction`` (ℓ/L) or ``q`` (the stream's mean square at ℓ).
        theory: a table of predictions, drawn as a line of its own; rows of ``table`` with source ``theory`` too.
        depths: all depths of which a common legend speaks, where several axes share one.
        legend: whether to put a legend beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    placed = at_streams(points(table, EXPONENTS, "arithmetic", x=x, theory=theory), table, x)
    ax = ax or new_axes()
    dress(ax, placed, x, _YLABEL, log=False)
    ax.axhline(0, color="#9aa4b1", linewidth=0.8, zorder=0)
    paint(ax, placed, depths)
    if legend:
        add_legend(ax)
    return ax


def at_streams(placed: pd.DataFrame, table: pd.DataFrame, x: str) -> pd.DataFrame:
    """Return points with x = q of the stream at their layer, whatever sub-layer it comes after, where that is asked."""
    if x != "q":
        return placed
    rows = with_depth(table, STREAM_Q.select(table))
    rows = rows[(rows["source"] == "measured") & rows["sublayer"].isin(["embed", "mlp"])]
    by = [name for name in placed.columns if name in rows.columns and name not in ("source", "sublayer", "dtype", "x")]
    q = aggregate(rows, by, "geometric").rename(columns={"centre": "q"})
    return placed.assign(x=placed[by].merge(q[[*by, "q"]], on=by, how="left")["q"].to_numpy(dtype="float64"))


def _change(path: Sequence[float], at: Sequence[int]) -> str:
    first, last = path[0], path[-1]
    if not (np.isfinite(first) and np.isfinite(last)):
        return f"goes from {number(first)} to {number(last)}"
    return minus(f"goes from {first:.3f} to {last:.3f}")


LAYER_EXPONENTS: Final = Plot(
    of="jacobian",
    note="Layer 0: the map of the first block.",
    name="layer_exponents",
    title="Growth of tangent vectors in each block",
    explains="Half the logarithm of the mean square by which the map from layer ℓ to layer ℓ + 1 stretches random "
    "vectors; 0 where it keeps their length.",
    function=layer_exponents,
    needs=EXPONENTS,
    average="arithmetic",
    finding=lambda table: profile_finding(
        points(table, EXPONENTS, "arithmetic"), "a block's exponent", _change, ratios=False
    ),
)
