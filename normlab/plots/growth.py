"""How the residual stream grows from layer to layer."""

from collections.abc import Sequence
from typing import Final

import pandas as pd
from matplotlib.axes import Axes

from normlab.plots._curves import points
from normlab.plots._laws import draw_law, fitted_laws, write_laws
from normlab.plots._paint import add_legend
from normlab.plots._profile import profile
from normlab.plots._rows import Rows
from normlab.plots._words import LISTED, profile_finding
from normlab.plots.plot import Plot

ROWS: Final = Rows("rms", site="stream", sublayers=("embed", "mlp"))


def stream_growth(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the rms of the residual stream against the layer, a line a depth, with the fitted law.

    Layer 0 is what the first block receives; layer ℓ is the stream after the block's last sub-layer. The law is
    fitted to the mean square of the deepest model, and its root is drawn.

    Args:
        table: a table with rows of ``rms`` at site ``stream``.
        ax: where to draw; a new figure unless given.
        x: ``layer``, ``fraction`` (ℓ/L) or ``q`` (the stream's mean square).
        theory: a table of predictions, drawn as a line of its own; rows of ``table`` with source ``theory`` too.
        depths: all depths of which a common legend speaks, where several axes share one.
        legend: whether to put a legend beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    drawn = profile(table, ROWS, "rms of the stream (units)", ax=ax, x=x, theory=theory, depths=depths, legend=False)
    laws = fitted_laws(table) if x != "q" else []
    for law in laws:
        named = f"{law.panel}: {law.label}" if law.panel else law.label
        draw_law(drawn, law, x, named if legend else "fitted law")
    if legend:
        add_legend(drawn)
    else:
        write_laws(drawn, laws)
    return drawn


def finding(table: pd.DataFrame) -> str:
    """Say how much the stream grows, and by which law."""
    laws = fitted_laws(table)
    said = profile_finding(points(table, ROWS, "geometric"), "the stream's rms")
    if not laws or len(laws) > LISTED:
        return said
    named = "; ".join(f"{law.panel + ': ' if law.panel else ''}{law.label}" for law in laws)
    return f"{said} Fitted law of the mean square q: {named}."


GROWTH: Final = Plot(
    name="stream_growth",
    title="Growth of the residual stream",
    explains="The rms of what flows from block to block; layer 0 is the embedding.",
    function=stream_growth,
    needs=ROWS,
    average="geometric",
    finding=finding,
)
