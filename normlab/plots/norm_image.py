"""The Jacobian of one norm as an image."""

from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from normlab.digits import minus
from normlab.errors import DataError
from normlab.plots._rows import Rows
from normlab.plots._style import style
from normlab.plots.plot import Plot

#: More rows or columns than this are thinner than a pixel.
LARGEST = 1024


def norm_jacobian(
    matrix: Float[Tensor, "rows columns"] | Float[np.ndarray, "rows columns"],
    *,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Draw the entries ∂y_i/∂x_j of a Jacobian, such as a norm's: dark blue below 0, grey at it, bright yellow above.

    The brighter entry is the larger one, in greyscale too.

    The scale is logarithmic on both sides of 0 and linear within a hundredth of the largest entry of the diagonal's
    size, so that the 1/d of a projection is seen beside the diagonal::

        norm = nl.jacobian.parts(model, batch).norm(1, "attn")
        token = norm.token(3)
        nl.plots.norm_jacobian(nl.jacobian.dense(token, token.point))

    Args:
        matrix: the Jacobian.
        ax: where to draw; a new figure unless given.
        title: stands over the axes.

    Raises:
        DataError: the matrix is empty, not finite, or has more than 1024 rows or columns.
    """
    entries = np.asarray(matrix.detach().cpu() if isinstance(matrix, Tensor) else matrix, dtype=np.float64)
    if not 0 < max(entries.shape) <= LARGEST or not np.isfinite(entries).all():
        raise DataError(
            f"a Jacobian of shape {entries.shape} cannot be drawn as an image: give finite entries, 1 to {LARGEST} "
            f"rows and columns"
        )
    largest = float(np.abs(entries).max()) or 1.0
    if ax is None:
        with style():
            ax = Figure(figsize=(5.2, 4.2), layout="constrained").add_subplot()
    scale = SymLogNorm(linthresh=largest / 100, vmin=-largest, vmax=largest, base=10)
    image = ax.imshow(entries, norm=scale, cmap="cividis", interpolation="nearest")
    figure = ax.get_figure(root=True)
    assert figure is not None
    with style():
        bar = figure.colorbar(image, ax=ax, shrink=0.85, label="∂y/∂x (units of y per unit of x)")
    ticks = [-largest, -largest / 10, -largest / 100, 0.0, largest / 100, largest / 10, largest]
    bar.set_ticks(ticks, labels=[minus(f"{tick:.2g}") for tick in ticks])
    bar.ax.minorticks_off()
    ax.grid(False)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.set_xlabel("entry j of the input x")
    ax.set_ylabel("entry i of the output y")
    if title:
        ax.set_title(title, loc="left", fontsize=9, fontweight="bold")
    return ax


class _NoRows(Rows):
    """What a plot needs that is drawn from a matrix."""

    def missing(self, table: pd.DataFrame) -> str:
        """Say how it is drawn instead."""
        return (
            "it draws a matrix, which no table holds: call nl.plots.norm_jacobian(matrix), or "
            "normlab jacobian --part 'block 1 attn norm' --out DIR"
        )


NORM_JACOBIAN: Final = Plot(
    name="norm_jacobian",
    title="Jacobian of one norm",
    explains="The entries ∂y_i/∂x_j of a norm's Jacobian as colours, dark blue below 0, bright yellow above.",
    function=norm_jacobian,
    needs=_NoRows(""),
    average="arithmetic",
    finding=lambda table: "A matrix has no rows.",
    of="matrix",
)
