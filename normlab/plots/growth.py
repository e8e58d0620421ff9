"""How the residual stream grows from layer to layer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pandas as pd
from matplotlib.axes import Axes

from normlab.plots._curves import points
from normlab.plots._laws import draw_guide, draw_law, fitted_laws, write_laws
from normlab.plots._paint import add_legend
from normlab.plots._profile import beside, profile
from normlab.plots._rows import Rows
from normlab.plots._words import LISTED, profile_finding
from normlab.plots.plot import Plot

ROWS: Final = Rows("rms", site="stream", sublayers=("embed", "mlp"))
#: What an inspection measures beside it.
BULK: Final = replace(ROWS, quantity="bulk_rms")
_WITHOUT: Final = "without the most massive token of each sequence"


def stream_growth(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the rms of the residual stream against the layer, a line a depth, with the law that its seeds agree on.

    Layer 0 is what the first block receives; layer ℓ is the stream after the block's last sub-layer. The law is
    fitted to the mean square of the deepest model, and its root is drawn; where the seeds agree on none, the axes
    say so. Beside a stream that grows stands a guide of slope ½, where layers are spaced by doubling. Of a model that
    was inspected the rms without the most massive token of each sequence is drawn too.

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
    beside(drawn, table, BULK, _WITHOUT.replace(" token of", "\ntoken of"), x)
    laws = fitted_laws(table) if x != "q" else []
    for law in laws:
        named = f"{law.panel}: {law.label}" if law.panel else law.label
        if law.holds:
            draw_law(drawn, law, x, named if legend else "fitted law")
    if x != "q":
        draw_guide(drawn, points(table, ROWS, "geometric", x=x))
    if legend:
        add_legend(drawn)
    write_laws(drawn, [law for law in laws if not (legend and law.holds)], several=legend and len(laws) > 1)
    return drawn


def finding(table: pd.DataFrame) -> str:
    """Say how much the stream grows, and by which law."""
    laws = fitted_laws(table)
    said = profile_finding(points(table, ROWS, "geometric"), "the stream's rms")
    if not BULK.missing(table):
        said += f" {profile_finding(points(table, BULK, 'geometric'), f'the rms {_WITHOUT}')}"
    if not laws or len(laws) > LISTED:
        return said
    named = "; ".join(f"{law.panel + ': ' if law.panel else ''}{law.label}{law.outside}" for law in laws)
    return f"{said} Law of the mean square q{' of all entries' if not BULK.missing(table) else ''}: {named}."


GROWTH: Final = Plot(
    name="stream_growth",
    title="Growth of the residual stream",
    explains="The rms of what flows from block to block; layer 0 is the embedding.",
    function=stream_growth,
    needs=ROWS,
    average="geometric",
    finding=finding,
    also=("bulk_rms",),
)
