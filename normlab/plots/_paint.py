"""Curves become lines, bands and marks on an axes."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from normlab.plots._curves import Curve, curves
from normlab.plots._style import SOFT, THEORY, Dash, Look, depth_looks, kind_looks, style
from normlab.plots._ticks import layer_axis, log_axis

#: More points than this in one axes become pixels in an SVG.
_RASTER_POINTS: Final = 2000
#: More lines than this do not get a legend entry each.
_LEGEND_LINES: Final = 24
_MARKS: Final = 5
#: Why a point has no place on the axis: the column that counts it, and its marker.
_GAPS: Final = {"not finite": ("nonfinite", "x"), "exactly zero": ("zeros", "v")}
#: A line of no more points than this has a marker at each.
_MARK_ALL: Final = 12
#: Predicted curves that differ by no more than this share anywhere lie on each other.
_APART: Final = 0.05
#: Dots of predicted curves that must be told apart, of the shallowest, a middle and the deepest model.
_DOTS: Final[tuple[Dash, ...]] = ((0, (0.1, 2.2)), (0, (2.6, 2.2, 0.1, 2.2)), (0, (0.1, 4.6)))
_X_LABELS: Final = {
    "layer": "layer ℓ",
    "fraction": "relative depth ℓ/L",
    "q": "mean square q of the stream (squared units)",
}


def new_axes() -> Axes:
    """Return the axes of a new figure that belongs to no window and no global state."""
    with style():
        return Figure(figsize=(6.4, 4.0), layout="constrained").add_subplot()


def paint(ax: Axes, placed: pd.DataFrame, depths: Sequence[int] | None = None) -> None:
    """Draw every curve of ``placed``: a line a depth, and where there are several kinds of models, a colour a kind."""
    lines = list(curves(placed))
    kinds = list(dict.fromkeys(curve.panel for curve in lines))
    depth_look = depth_looks([*(depths or ()), *(curve.depth for curve in lines)])
    kind_look = kind_looks(kinds)
    rasterized = len(placed) > _RASTER_POINTS
    deepest = {kind: max(curve.depth for curve in lines if curve.panel == kind) for kind in kinds}
    crowded, apart = len(lines) > _LEGEND_LINES, {kind: told_apart(placed, kind) for kind in kinds}
    for place, curve in enumerate(lines):
        if curve.source == "theory":
            own, last = apart[curve.panel], curve.depth == deepest[curve.panel]
            if not own:
                predicted(ax, curve.points, spread=last, rasterized=rasterized)
            elif curve.depth in own:
                dots, name = _DOTS[own.index(curve.depth)], f"L = {curve.depth}"
                predicted(ax, curve.points, spread=last, dots=dots, name=name, rasterized=rasterized)
            continue
        look = depth_look[curve.depth]
        if len(kinds) > 1:
            look = Look(kind_look[curve.panel].color, kind_look[curve.panel].marker, look.dash)
        label = _label(curve, len(kinds) > 1) if not crowded else "_"
        _measured(ax, curve, look, label, (place + 1) / len(lines), rasterized=rasterized)


def told_apart(placed: pd.DataFrame, panel: str) -> list[int]:
    """Return the depths whose predicted curves are drawn where those of all could not be told apart.

    They are the shallowest, a middle and the deepest; none where the curves of all depths lie on each other.
    """
    rows = placed[(placed["panel"] == panel) & (placed["source"] == "theory")]
    layers = rows.groupby("layer")["centre"]
    spread = (layers.max() - layers.min()) / layers.max().abs()
    depths = sorted({int(depth) for depth in rows["depth"]})
    if len(depths) < 2 or not bool((spread > _APART).any()):
        return []
    return depths if len(depths) <= len(_DOTS) else [depths[0], depths[len(depths) // 2], depths[-1]]


def _label(curve: Curve, several: bool) -> str:
    return f"{curve.panel}, L = {curve.depth}" if several else f"{curve.depth}"


def _measured(ax: Axes, curve: Curve, look: Look, label: str, offset: float, *, rasterized: bool) -> None:
    points = curve.points
    x, centre = points["x"].to_numpy(), points["centre"].to_numpy()
    ax.plot(
        x,
        centre,
        color=look.color,
        linestyle=look.dash,
        linewidth=1.6,
        marker=look.marker,
        markersize=4.2,
        markeredgecolor="white",
        markeredgewidth=0.6,
        markevery=marked(ax, x, offset),
        label=label,
        rasterized=rasterized,
    )
    if np.isfinite(points["low"]).any():
        ax.fill_between(
            x, points["low"], points["high"], color=look.color, alpha=0.17, linewidth=0, rasterized=rasterized
        )
    mark_gaps(ax, points, look)


def predicted(
    ax: Axes,
    points: pd.DataFrame,
    *,
    spread: bool = True,
    dots: Dash = _DOTS[0],
    name: str = "",
    rasterized: bool = False,
) -> None:
    """Draw theory: black dots, and with ``spread`` a thin line at either side where it says how much seeds spread.

    Args:
        ax: where to draw.
        points: the points.
        spread: whether to draw the thin lines.
        dots: how the dots stand.
        name: stands at the curve's end.
        rasterized: whether lines become pixels.
    """
    x = points["x"].to_numpy()
    for side in ("low", "high") if spread else ():
        if np.isfinite(points[side]).any():
            ax.plot(x, points[side].to_numpy(), color=THEORY, linewidth=0.45, zorder=3.5, rasterized=rasterized)
    centre = points["centre"].to_numpy()
    ax.plot(
        x,
        centre,
        color=THEORY,
        linestyle=dots,
        dash_capstyle="round",
        linewidth=1.9,
        zorder=4,
        label="theory",
        rasterized=rasterized,
    )
    known = np.isfinite(x) & np.isfinite(centre)
    if name and known.any():
        _name_end(ax, float(x[known][-1]), float(centre[known][-1]), name)


def _name_end(ax: Axes, x: float, y: float, name: str) -> None:
    halo = [withStroke(linewidth=2.2, foreground="white")]
    ax.annotate(
        name,
        (x, y),
        xytext=(0, -5),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=6.5,
        color=THEORY,
        path_effects=halo,
        zorder=6,
    )


def marked(ax: Axes, x: np.ndarray, offset: float) -> list[int]:
    """Return which points carry a marker: all of a few; of many the last, and some spread over the line on screen.

    ``offset`` shifts those, so that the markers of lines that lie on each other do not.
    """
    if len(x) <= _MARK_ALL:
        return list(range(len(x)))
    if not np.isfinite(x).all():
        return [len(x) - 1]
    place = ax.transScale.transform(np.column_stack([x, np.ones(len(x))]))[:, 0]
    if not np.isfinite(place).all():
        return [len(x) - 1]
    share = (place - place[0]) / (place[-1] - place[0] or 1.0)
    wanted = (np.arange(_MARKS) + offset) / _MARKS
    return sorted({int(np.abs(share - target).argmin()) for target in wanted} | {len(x) - 1})


def mark_gaps(ax: Axes, points: pd.DataFrame, look: Look) -> None:
    """Mark what has no place on the axis: not finite at the top edge, exactly zero at the bottom edge."""
    for (label, (column, marker)), edge in zip(_GAPS.items(), (0.985, 0.015), strict=True):
        hidden = (points[column] > 0) & points["centre"].isna()
        if hidden.any():
            x = points.loc[hidden, "x"].to_numpy()
            ax.plot(
                x,
                np.full(len(x), edge),
                transform=ax.get_xaxis_transform(),
                color=look.color,
                linestyle="none",
                marker=marker,
                markersize=4,
                clip_on=False,
                label=label,
            )


def dress(ax: Axes, placed: pd.DataFrame, x: str, ylabel: str, *, log: bool = True) -> None:
    """Label the axes and give them their scales; call it before :func:`paint`, which places markers by scale."""
    if log:
        log_axis(ax, "y")
    if x == "q":
        log_axis(ax, "x")
    elif x == "layer":
        layer_axis(ax, [int(depth) for depth in placed["depth"].unique()])
    ax.set_xlabel(_X_LABELS[x])
    ax.set_ylabel(ylabel)


def legend_entries(axes: Sequence[Axes]) -> tuple[list[Artist], list[str], str | None]:
    """Return one handle for each label that the lines of ``axes`` have, the labels, and the legend's title.

    Depths stand in increasing order, theory last; one depth alone needs no title.
    """
    found: dict[str, Artist] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            found.setdefault(str(label), _of_no_line(str(label)) if label in _GAPS else handle)
    order = sorted(
        found, key=lambda label: (not label.isdigit(), label == "theory", int(label) if label.isdigit() else 0)
    )
    depths = sum(label.isdigit() for label in order)
    words = [f"L = {label}" if label.isdigit() and depths == 1 else label for label in order]
    return [found[label] for label in order], words, "depth L" if depths > 1 else None


def _of_no_line(label: str) -> Artist:
    """Return the handle of marks that the legend has once and each line in its own colour."""
    return Line2D([], [], color=SOFT, linestyle="none", marker=_GAPS[label][1], markersize=4)


def add_legend(ax: Axes) -> None:
    """Put the legend beside the axes, where it hides no data."""
    handles, labels, title = legend_entries([ax])
    if labels:
        ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.02), title=title)
