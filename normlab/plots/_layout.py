"""A figure of panels that share their axes, their legend and a line that says what the bands are."""

import math
import textwrap
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from normlab.plots._paint import legend_entries
from normlab.plots._style import SOFT

#: Small multiples beyond this are too small to read; the rest are named in the figure's note.
MOST_PANELS: Final = 48
#: Letters of the note that fit beside each other.
_LETTERS_PER_INCH: Final = 15.5
_WIDTHS: Final = {1: 4.7, 2: 3.5, 3: 2.9, 4: 2.45}


def panel_grid(count: int, across: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels in rows of ``across``, all with the same limits."""
    rows = math.ceil(count / across)
    width = _WIDTHS.get(across, 2.1)
    size = (across * width + 1.5, rows * (0.72 * width if rows > 1 else 0.86 * width) + 0.8)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.07))
    grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
    axes = [ax for row in grid for ax in row]
    for spare in axes[count:]:
        spare.remove()
    for ax in axes[max(0, count - across) : count]:
        ax.tick_params(labelbottom=True)
    return figure, axes[:count]


def columns(count: int, group: int) -> int:
    """Return how many panels stand beside each other; the ``group`` panels of one kind of model stay in one row."""
    if group > 1:
        return group if count <= 3 * group else group * max(1, 4 // group)
    return count if count <= 3 else 2 if count == 4 else 3 if count <= 9 else 4


def outer_labels_only(figure: Figure, axes: Sequence[Axes], across: int) -> None:
    """Remove the axis labels that the panels beside and below repeat; many rows share one label."""
    if len(axes) > 2 * across:
        figure.supylabel(axes[0].get_ylabel(), fontsize=9)
    for place, ax in enumerate(axes):
        if place % across or len(axes) > 2 * across:
            ax.set_ylabel("")
        if place + across < len(axes):
            ax.set_xlabel("")


def share_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend for all panels at the right of the figure."""
    handles, labels, title = legend_entries(axes)
    if labels:
        figure.legend(handles, labels, loc="outside right upper", title=title, alignment="left")


def head_and_foot(figure: Figure, title: str, notes: Sequence[str]) -> None:
    """Write the title and the notes, each on lines of its own, all flush left."""
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    wide = int(figure.get_size_inches()[0] * _LETTERS_PER_INCH)
    if text := "\n".join(textwrap.fill(note, wide) for note in notes if note):
        figure.supxlabel(text, x=0.01, ha="left", fontsize=7.5, color=SOFT)
