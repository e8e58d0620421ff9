"""Whole figures: panels for the kinds of models, and files that are the same bytes when drawn again."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from normlab.errors import DataError
from normlab.files import whole_file
from normlab.plots._curves import points
from normlab.plots._layout import MOST_PANELS, columns, head_and_foot, outer_labels_only, panel_grid, share_legend
from normlab.plots._paint import add_legend, new_axes
from normlab.plots._panels import panel_columns, split_panels, sublayer_words
from normlab.plots._style import FIT, SOFT, style
from normlab.plots.catalog import PLOTS
from normlab.plots.plot import Plot, origins

_PNG_DPI: Final = 160
_FORMATS: Final = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}


def draw(
    table: pd.DataFrame,
    name: str,
    *,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    titled: bool = True,
    note: str = "",
) -> Figure:
    """Draw the plot ``name`` as a figure of its own: a panel for each kind of model, with shared axes.

    Args:
        table: the measurements.
        name: a name of :data:`PLOTS`.
        x: ``layer``, ``fraction`` or ``q``.
        theory: a table of predictions.
        titled: whether the title and the note on lines and bands are part of the figure.
        note: stands below that note.

    Raises:
        UnknownNameError: no plot has that name.
        DataError: the table lacks the rows, or the plot has no such x axis.
    """
    plot = PLOTS[name]
    reason = plot.missing(table)
    if reason:
        raise DataError(f"{plot.name} cannot be drawn: {reason}")
    few = plot.relevant(table)
    theory = None if theory is None else plot.relevant(theory)
    with style():
        figure, left_out = _panels(few, plot, x, theory) if plot.panels else (_single(few, plot, x, theory), "")
        if titled:
            words = f"{plot.describe(points(few, plot.needs, plot.average, theory=theory))} {left_out}".strip()
            head_and_foot(figure, plot.title, [words, *note.splitlines()])
    return figure


def _single(table: pd.DataFrame, plot: Plot, x: str, theory: pd.DataFrame | None) -> Figure:
    ax = new_axes()
    plot.function(table, ax=ax, x=x, theory=theory, legend=False)
    add_legend(ax)
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def _panels(table: pd.DataFrame, plot: Plot, x: str, theory: pd.DataFrame | None) -> tuple[Figure, str]:
    measured = plot.needs.select(table)
    names = panel_columns(measured)
    depths = sorted(int(depth) for depth in measured["depth"].unique())
    sublayers = [name for name in plot.needs.sublayers if (measured["sublayer"] == name).any()]
    group = len(sublayers) if plot.needs.apart else 1
    kinds = list(split_panels(table, names))
    across = columns(len(kinds) * group, group)
    shown = kinds[: MOST_PANELS // group]
    figure, axes = panel_grid(len(shown) * group, across)
    spots = iter(axes)
    for label, rows in shown:
        for sublayer in sublayers if plot.needs.apart else [None]:
            ax, only = next(spots), {} if sublayer is None else {"sublayer": sublayer}
            _panel(rows, plot, x, theory, only, {"ax": ax, "depths": depths}, label)
    outer_labels_only(figure, axes, across)
    share_legend(figure, axes)
    rest = len(kinds) - len(shown)
    return figure, f"{rest} more kinds of models are not drawn." if rest else ""


def _panel(
    rows: pd.DataFrame,
    plot: Plot,
    x: str,
    theory: pd.DataFrame | None,
    only: dict[str, str],
    shared: dict[str, Any],
    label: str,
) -> None:
    """Draw one panel and name it; a kind of model without that sub-layer leaves its panel empty and says so."""
    ax = shared["ax"]
    words = [label, *(sublayer_words(name) for name in only.values())]
    title = " · ".join(word for word in words if word)
    if plot.needs.missing(rows) or (only and not (plot.needs.select(rows)["sublayer"] == only["sublayer"]).any()):
        ax.text(0.5, 0.5, "no rows", transform=ax.transAxes, ha="center", va="center", color=SOFT)
    else:
        plot.function(rows, x=x, theory=theory, legend=False, **shared, **only)
    ax.set_title(
        title,
        loc="left",
        fontsize=9,
        fontweight="bold",
        pad=17 if any(text.get_color() == FIT for text in ax.texts) else 6,
    )


def save(figure: Figure, path: Path | str) -> Path:
    """Write ``figure`` as SVG or PNG: the same figure gives the same bytes.

    Raises:
        DataError: the name ends in neither ``.svg`` nor ``.png``.
        OSError: the folder does not exist or cannot be written.
    """
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise DataError(f"a plot cannot be written to {path.name!r}: choose a name that ends in .svg or .png")
    with style(), whole_file(path) as part:
        figure.savefig(part, format=path.suffix[1:], dpi=_PNG_DPI, metadata=_FORMATS[path.suffix])
    return path


def skipped(table: pd.DataFrame) -> dict[str, str]:
    """Return the plots that ``table`` cannot fill, each with the reason in one sentence.

    Plots of what was not asked for at all, as Jacobians or a comparison, are left out.
    """
    found = origins(table)
    return {name: reason for name, plot in PLOTS.items() if plot.of in found and (reason := plot.missing(table))}


def write_plots(
    table: pd.DataFrame,
    folder: Path | str,
    *,
    names: Sequence[str] | None = None,
    x: str = "layer",
    theory: pd.DataFrame | None = None,
    formats: Iterable[str] = ("svg", "png"),
    note: str = "",
) -> list[Path]:
    """Write the plots that ``table`` can fill into ``folder``; :func:`skipped` says which it cannot, and why.

    Args:
        table: the measurements.
        folder: created if need be.
        names: which plots; all unless given.
        x: the x axis; a plot that has no such axis is drawn against the layer.
        theory: a table of predictions.
        formats: ``svg``, ``png`` or both.
        note: stands below each plot's own note.

    Raises:
        UnknownNameError: no plot has one of the names.
        DataError: a plot that was asked for by name cannot be drawn, or a format is neither of the two.
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [name for name, plot in PLOTS.items() if not plot.missing(table)] if names is None else list(names)
    written = []
    for name in chosen:
        along = "layer" if PLOTS[name].needs.last and x == "fraction" else x
        figure = draw(table, name, x=along, theory=theory, note=note)
        written += [save(figure, folder / f"{name}.{suffix}") for suffix in formats]
    return written
