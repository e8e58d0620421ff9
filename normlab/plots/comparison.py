"""Where two models or runs part: the ratio of their streams, and what each block adds to their divergence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from normlab.plots._curves import points
from normlab.plots._paint import add_legend, dress, mark_gaps, marked, new_axes
from normlab.plots._rows import Rows
from normlab.plots._style import SOFT, kind_looks
from normlab.plots._words import profile_finding
from normlab.plots.plot import Plot
from normlab.vocabulary import NO_SUM

_SUBLAYERS: Final = ("embed", "mlp")
RATIO: Final = Rows("ratio", site="stream", sublayers=_SUBLAYERS)
TOTAL: Final = Rows("divergence", site="stream", sublayers=_SUBLAYERS)
#: The axis of ratios reaches at least this far from 1, so that rounding does not look like a law.
_LEAST: Final = 0.01
#: What is drawn in one panel: each quantity, its words, and the size of its markers, which may lie on each other.
_LINES: Final = {
    "divergence": ("in all, median token", 6.6),
    "inherited": ("inherited, median token", 4.4),
    "added": ("added, median token", 4.4),
    "divergence_worst": ("in all, worst token", 4.4),
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

    The band is one standard error over seeds, where there are several. The axis is linear where all ratios lie
    between ½ and 2, and otherwise logarithmic.

    Args:
        table: a table with rows of ``ratio`` at site ``stream``.
        ax: where to draw; a new figure unless given.
        x: ``layer`` or ``fraction`` (ℓ/L).
        theory: not drawn.
        depths: not used; a comparison is of one depth.
        legend: not used; there is one line.

    Raises:
        DataError: the table lacks the rows, or ``x`` is no axis that it has.
    """
    ax = ax or new_axes()
    line = points(table, RATIO, "geometric", x=x).sort_values("layer", kind="stable")
    at, centre = line["x"].to_numpy(), line["centre"].to_numpy()
    near = bool(np.all((centre > 0.5) & (centre < 2)))
    dress(ax, line, x, "median rms of the stream, B / A", log=not near)
    if near:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
        ax.update_datalim([(at[0], 1 - _LEAST), (at[0], 1 + _LEAST)])
    look = kind_looks(["ratio"])["ratio"]
    ax.plot(
        at, centre, color=look.color, marker=look.marker, markevery=marked(ax, at, 1), linewidth=1.6, markersize=4.2
    )
    se = RATIO.select(table).groupby("layer")["se"].first().reindex(line["layer"]).to_numpy(dtype="float64")
    ax.fill_between(at, centre - se, centre + se, color=look.color, alpha=0.17, linewidth=0)
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

    The arguments are those of :func:`stream_ratio`; the rows are ``divergence``, ``inherited``, ``added`` and
    ``divergence_worst``.

    Raises:
        DataError: the table lacks the rows, or ``x`` is no axis that it has.
    """
    ax = ax or new_axes()
    placed = points(table, TOTAL, "geometric", x=x)
    dress(ax, placed, x, "difference of the streams\n(share of the token's length)")
    for place, (name, look) in enumerate(kind_looks(list(_LINES)).items()):
        rows = replace(TOTAL, quantity=name)
        if rows.missing(table):
            continue
        line = points(table, rows, "geometric", x=x).sort_values("layer", kind="stable")
        at, centre = line["x"].to_numpy(), line["centre"].to_numpy()
        spots = marked(ax, at, (place + 1) / len(_LINES)) if np.isfinite(centre).any() else []
        words, size = _LINES[name]
        drawn: dict[str, Any] = {"color": look.color, "linestyle": look.dash, "marker": look.marker, "markevery": spots}
        ax.plot(at, centre, label=words, linewidth=1.6, markersize=size, **drawn)
        mark_gaps(ax, line, look)
    if legend:
        add_legend(ax)
    return ax


def _ratio_finding(table: pd.DataFrame) -> str:
    return profile_finding(points(table, RATIO, "geometric"), "B's stream over A's")


def _divergence_finding(table: pd.DataFrame) -> str:
    return profile_finding(points(table, TOTAL, "geometric"), "the difference of the streams")


STREAM_RATIO: Final = Plot(
    name="stream_ratio",
    title="Ratio of two streams",
    explains="How large the stream of B is beside that of A, by the median token's rms; 1 where both are as large.",
    function=stream_ratio,
    needs=RATIO,
    average="geometric",
    finding=_ratio_finding,
    of="comparison",
    note="Band: one standard error, where there are several seeds.",
)
DIVERGENCE: Final = Plot(
    name="divergence",
    title="Divergence of two streams",
    explains="How far the streams of two models are apart on the same input, of the median token: in all, what a block "
    "inherits from those before it, and what it adds when it is fed with A's stream; in all also of the worst token.",
    function=divergence,
    needs=TOTAL,
    average="geometric",
    finding=_divergence_finding,
    of="comparison",
    also=("inherited", "added", "divergence_worst"),
    note=NO_SUM,
)
