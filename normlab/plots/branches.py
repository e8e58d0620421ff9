"""What a sub-layer receives, and what it adds relative to the stream."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pandas as pd
from matplotlib.axes import Axes

from normlab.plots._curves import points
from normlab.plots._paint import add_legend
from normlab.plots._profile import beside, profile
from normlab.plots._rows import Rows
from normlab.plots._words import profile_finding
from normlab.plots.plot import Plot

_SUBLAYERS: Final = ("attn", "cross", "mlp")
INPUT: Final = Rows("rms", site="input", sublayers=_SUBLAYERS, apart=True)
RATIO: Final = Rows("update_ratio", site="update", sublayers=_SUBLAYERS, apart=True)
#: What an inspection measures beside it.
MEDIAN: Final = replace(RATIO, quantity="median_update_ratio")


def input_scale(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    sublayer: str | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the rms of what each sub-layer's first matrix product sees, against the layer.

    Args:
        table: a table with rows of ``rms`` at site ``input``.
        ax: where to draw; a new figure unless given.
        x: ``layer``, ``fraction`` (ℓ/L) or ``q`` (the stream's mean square).
        theory: a table of predictions, drawn as a line of its own.
        depths: all depths of which a common legend speaks.
        sublayer: ``attn``, ``cross`` or ``mlp``; all that the table has unless given.
        legend: whether to put a legend beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    needs, ylabel = _only(INPUT, sublayer), "rms of the sub-layer's input (units)"
    return profile(table, needs, ylabel, ax=ax, x=x, theory=theory, depths=depths, legend=legend)


def update_ratio(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    sublayer: str | None = None,
    legend: bool = True,
) -> Axes:
    """Draw rms(update)/rms(skip), how much a sub-layer changes the stream, against the layer.

    The arguments are those of :func:`input_scale`; the rows are ``update_ratio`` at site ``update``. Of a model that
    was inspected the ratio of the median token's lengths is drawn too.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    needs, ylabel = _only(RATIO, sublayer), "rms(update) / rms(skip)"
    drawn = profile(table, needs, ylabel, ax=ax, x=x, theory=theory, depths=depths, legend=False)
    beside(drawn, table, _only(MEDIAN, sublayer), "median token", x)
    if legend:
        add_legend(drawn)
    return drawn


def _only(rows: Rows, sublayer: str | None) -> Rows:
    return rows if sublayer is None else replace(rows, sublayers=(sublayer,))


def _ratio_finding(table: pd.DataFrame) -> str:
    of_all = points(table, RATIO, "geometric")
    if MEDIAN.missing(table):
        return profile_finding(of_all, "rms(update)/rms(skip)")
    return (
        f"{profile_finding(of_all, 'rms(update)/rms(skip) of all entries, which one massive token can rule,')} "
        f"{profile_finding(points(table, MEDIAN, 'geometric'), 'the ratio of the median token')}"
    )


INPUT_SCALE: Final = Plot(
    name="input_scale",
    title="Scale of the sub-layers' inputs",
    explains="The rms of what a sub-layer's first matrix product sees: a norm in front of it leaves it to the norm's "
    "gains, and where these are all one it is flat.",
    function=input_scale,
    needs=INPUT,
    average="geometric",
    finding=lambda table: profile_finding(points(table, INPUT, "geometric"), "the input's rms"),
)
UPDATE_RATIO: Final = Plot(
    name="update_ratio",
    title="Size of the update relative to the stream",
    explains="How much a sub-layer changes the stream that passes it; a small ratio means a block near identity.",
    function=update_ratio,
    needs=RATIO,
    average="geometric",
    finding=_ratio_finding,
    also=("median_update_ratio",),
)
