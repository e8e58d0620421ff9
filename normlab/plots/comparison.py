"""Where two models or runs part: the ratio of their streams, and what each block adds to their divergence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from normlab.plots._curves import points
from normlab.plots._layout import head_and_foot, outer_labels_only, panel_grid
from normlab.plots._paint import add_legend, dress, mark_gaps, marked, new_axes
from normlab.plots._profile import profile
from normlab.plots._rows import Rows
from normlab.plots._style import SOFT, kind_looks, style

_SUBLAYERS: Final = ("embed", "mlp")
RATIO: Final = Rows("ratio", site="stream", sublayers=_SUBLAYERS)
TOTAL: Final = Rows("divergence", site="stream", sublayers=_SUBLAYERS)
#: What is drawn in one panel: each quantity and its words.
_LINES: Final = {
    "divergence": "in all",
    "inherited": "inherited",
    "added": "added",
}


def stream_ratio(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the ratio B over A of the streams' median rms against the layer; 1 is a thin line.

    Args:
        table: a table with rows of ``ratio`` at site ``stream``.
        ax: where to draw; a new figure unless given.
        x: ``layer`` or ``fraction`` (ℓ/L).
        theory: not drawn.
        depths: all depths of which a common legend speaks.
        legend: whether to put a legend beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is no axis that it has.
    """
    ylabel = "median rms of the stream, B / A"
    ax = profile(table, RATIO, ylabel, ax=ax, x=x, theory=None, depths=depths, legend=legend)
    ax.axhline(1.0, color=SOFT, linewidth=0.7)
    return ax


def divergence(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw how far the streams of two models are apart, with what each block inherits and what it adds.

    The arguments are those of :func:`stream_ratio`; the rows are ``divergence``, ``inherited`` and ``added``.

    Raises:
        DataError: the table lacks the rows, or ``x`` is no axis that it has.
    """
    ax = ax or new_axes()
    placed = points(table, TOTAL, "geometric", x=x)
    dress(ax, placed, x, "difference of the streams\n(share of the median token's length)")
    for place, (name, look) in enumerate(kind_looks(list(_LINES)).items()):
        rows = replace(TOTAL, quantity=name)
        if rows.missing(table):
            continue
        line = points(table, rows, "geometric", x=x).sort_values("layer", kind="stable")
        at, centre = line["x"].to_numpy(), line["centre"].to_numpy()
        spots = marked(ax, at, (place + 1) / len(_LINES)) if np.isfinite(centre).any() else []
        drawn = {"color": look.color, "linestyle": look.dash, "marker": look.marker, "markevery": spots}
        ax.plot(at, centre, label=_LINES[name], linewidth=1.6, markersize=4.2, **drawn)  # type: ignore[arg-type]
        mark_gaps(ax, line, look)
    if legend:
        add_legend(ax)
    return ax


def draw_comparison(table: pd.DataFrame) -> dict[str, Figure]:
    """Return the figures of a comparison by name, with a panel for each stack: ``stream_ratio`` and ``divergence``.

    They are no part of :data:`~normlab.plots.PLOTS`, which draws what a sweep measures.

    Args:
        table: rows of ``ratio``, and for models on the same input of ``divergence``, ``inherited`` and ``added``.
    """
    with style():
        return {name: _figure(table, *one) for name, one in _FIGURES.items() if not one[1].missing(table)}


def _figure(table: pd.DataFrame, function: Callable[..., Axes], needs: Rows, title: str) -> Figure:
    stacks = list(dict.fromkeys(needs.select(table)["stack"].astype(str)))
    figure, axes = panel_grid(len(stacks), len(stacks))
    for ax, stack in zip(axes, stacks, strict=True):
        function(table[table["stack"].astype(str) == stack], ax=ax, legend=ax is axes[-1])
        if len(stacks) > 1:
            ax.set_title(stack, loc="left", fontsize=9, fontweight="bold")
    outer_labels_only(figure, axes, len(stacks))
    head_and_foot(figure, title, "")
    return figure


_FIGURES: Final[Mapping[str, tuple[Callable[..., Axes], Rows, str]]] = {
    "stream_ratio": (stream_ratio, RATIO, "Ratio of two streams"),
    "divergence": (divergence, TOTAL, "Divergence of two streams"),
}
