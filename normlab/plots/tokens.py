"""How alike the tokens are, forward and backward."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from normlab.digits import minus, number
from normlab.plots._curves import points
from normlab.plots._profile import profile
from normlab.plots._rows import Rows
from normlab.plots._words import profile_finding
from normlab.plots.plot import Plot

COHERENCE: Final = Rows("grad_coherence", site="stream_grad", sublayers=("embed", "mlp"))
OVERLAP: Final = Rows("token_overlap", site="stream", sublayers=("embed", "mlp"))


def grad_coherence(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the coherence of the stream's gradient over tokens, against the layer.

    1: every token has the same gradient; 1/n: the n tokens of a sequence have orthogonal ones.

    Args:
        table: a table with rows of ``grad_coherence`` at site ``stream_grad``.
        ax: where to draw; a new figure unless given.
        x: ``layer``, ``fraction`` (ℓ/L) or ``q`` (the stream's mean square).
        theory: a table of predictions, drawn as a line of its own.
        depths: all depths of which a common legend speaks.
        legend: whether to put a legend beside the axes.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    ylabel = "gradient coherence of tokens"
    return profile(table, COHERENCE, ylabel, ax=ax, x=x, theory=theory, depths=depths, legend=legend)


def token_overlap(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    depths: Sequence[int] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the overlap of different tokens of a sequence, p/q, against the layer: 1 is rank collapse.

    The arguments are those of :func:`grad_coherence`; the rows are ``token_overlap`` at site ``stream``. The
    overlap can be negative, so its mean over seeds is arithmetic and its axis linear.

    Raises:
        DataError: the table lacks the rows, or ``x`` is none of the three.
    """
    return profile(
        table,
        OVERLAP,
        "token overlap p/q",
        ax=ax,
        x=x,
        theory=theory,
        depths=depths,
        legend=legend,
        average="arithmetic",
    )


def _overlap_change(path: Sequence[float], at: Sequence[int]) -> str:
    first, last = path[0], path[-1]
    if not (np.isfinite(first) and np.isfinite(last)):
        return f"goes from {number(first)} to {number(last)}"
    if abs(last - first) < 0.01:
        return minus(f"goes from {first:.3f} to {last:.3f}")
    return minus(f"{'rises' if last > first else 'falls'} from {first:.2f} to {last:.2f}")


GRAD_COHERENCE: Final = Plot(
    name="grad_coherence",
    title="Gradient coherence of tokens",
    explains="1 where every token of a sequence has the same gradient, 1/n where the n gradients are orthogonal; "
    "coherent gradients survive the averaging of attention.",
    function=grad_coherence,
    needs=COHERENCE,
    average="geometric",
    finding=lambda table: profile_finding(points(table, COHERENCE, "geometric"), "the gradients' coherence"),
)
TOKEN_OVERLAP: Final = Plot(
    name="token_overlap",
    title="Token overlap",
    explains="Mean inner product of different tokens relative to their mean square: 1 is rank collapse.",
    function=token_overlap,
    needs=OVERLAP,
    average="arithmetic",
    finding=lambda table: profile_finding(
        points(table, OVERLAP, "arithmetic"), "the tokens' overlap", _overlap_change, ratios=False
    ),
)
