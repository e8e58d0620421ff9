"""Gradients of parameters: the last layer's against depth, and every layer's within a model."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from normlab.errors import DataError
from normlab.plots._curves import points
from normlab.plots._paint import add_legend, mark_gaps, new_axes, predicted
from normlab.plots._profile import profile
from normlab.plots._rows import Rows
from normlab.plots._slopes import LAST, Slope, fitted_slopes, slopes_finding
from normlab.plots._style import Look, kind_looks
from normlab.plots._ticks import depth_axis, log_axis
from normlab.plots._words import profile_finding
from normlab.plots.plot import Plot

EVERY: Final = Rows("grad_norm", role="down", sublayers=("mlp",))
_YLABEL: Final = "gradient norm of the down matrix\n(loss per unit of weight)"


def last_gradient(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the gradient norm of the last layer against the number of layers, log-log, with slope and interval.

    The gradient is that of the loss with respect to the down matrix of block L. A slope is fitted in each seed;
    its interval is Student's t over seeds. Every kind of model has a line of its own.

    Args:
        table: a table with rows of ``grad_norm`` of role ``down``.
        ax: where to draw; a new figure unless given.
        x: ``layer`` (the last one, L) or ``q`` (the stream's mean square there; no slope is fitted).
        theory: a table of predictions, drawn as a line of its own.
        legend: whether to put a legend, which states the slopes, beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is ``fraction``, which is 1 for every last layer.
    """
    if x == "fraction":
        raise DataError("the last layer has ℓ/L = 1 in every model: choose x = layer or x = q for last_gradient")
    placed = points(table, LAST, "geometric", x=x, theory=theory).sort_values("depth", kind="stable")
    ax = ax or new_axes()
    _dress(ax, placed, x)
    slopes = {slope.panel: slope for slope in fitted_slopes(table)} if x == "layer" else {}
    looks = kind_looks(list(placed["panel"].unique()))
    for panel, look in looks.items():
        rows = placed[placed["panel"] == panel]
        slope = slopes.get(panel, Slope(panel, None))
        _draw_kind(ax, rows[rows["source"] == "measured"], look, slope)
        expected = rows[rows["source"] == "theory"]
        if len(expected):
            predicted(ax, expected)
    if legend:
        add_legend(ax)
    return ax


def _dress(ax: Axes, placed: pd.DataFrame, x: str) -> None:
    log_axis(ax, "y")
    if x == "layer":
        depth_axis(ax, [int(depth) for depth in placed["depth"].unique()])
    else:
        log_axis(ax, "x")
    ax.set_xlabel("depth L (blocks)" if x == "layer" else "mean square q of the last stream (squared units)")
    ax.set_ylabel(_YLABEL)


def _draw_kind(ax: Axes, rows: pd.DataFrame, look: Look, slope: Slope) -> None:
    x, centre = rows["x"].to_numpy(), rows["centre"].to_numpy()
    mark_gaps(ax, rows, look)
    marks: dict[str, Any] = {
        "marker": look.marker,
        "markersize": 5.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.7,
    }
    dash = look.dash if slope.fit is None else "none"
    if np.isfinite(rows["low"]).any():
        below, above = centre - rows["low"].to_numpy(), rows["high"].to_numpy() - centre
        ax.errorbar(x, centre, yerr=[below, above], fmt="none", ecolor=look.color, elinewidth=1.1, capsize=2.5)
    ax.plot(x, centre, color=look.color, label=slope.label if slope.fit is None else "_", linestyle=dash, **marks)
    if slope.fit is not None:
        at = np.asarray(sorted(slope.fit.x))
        ax.plot(
            at,
            slope.fit.predict(at),
            color=look.color,
            linestyle=look.dash,
            linewidth=1.4,
            marker=look.marker,
            markevery=[],
            label=slope.label,
        )


def gradient_profile(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the gradient norm of each block's down matrix against the layer, a line a depth.

    Args:
        table: a table with rows of ``grad_norm`` of role ``down``.
        ax: where to draw; a new figure unless given.
        x: ``layer``, ``fraction`` (ℓ/L) or ``q`` (the stream's mean square).
        theory: a table of predictions, drawn as a line of its own.
        depths: all depths of which a common legend speaks.
        legend: whether to put a legend beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    return profile(table, EVERY, _YLABEL, ax=ax, x=x, theory=theory, depths=depths, legend=legend)


LAST_GRADIENT: Final = Plot(
    name="last_gradient",
    title="Gradient of the last layer against depth",
    explains="The gradient norm of the last block's down matrix, for models of increasing depth; the slope is "
    "fitted on logarithms.",
    function=last_gradient,
    needs=LAST,
    average="geometric",
    finding=slopes_finding,
    panels=False,
)
GRADIENT_PROFILE: Final = Plot(
    name="gradient_profile",
    title="Gradient against layer",
    explains="The gradient norm of every block's down matrix, within models of each depth.",
    function=gradient_profile,
    needs=EVERY,
    average="geometric",
    finding=lambda table: profile_finding(points(table, EVERY, "geometric"), "the gradient norm"),
)
