"""What the drawings look like: a style that never leaks, and lines that differ in more than their colour."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import matplotlib.colors
import matplotlib.style
import numpy as np

Dash: TypeAlias = str | tuple[int, tuple[float | int, ...]]

INK: Final = "#1c2430"
SOFT: Final = "#5b6675"
GRID: Final = "#e6e9ee"
#: A fitted law: warm, long dashes, and no marker.
FIT: Final = "#b3410e"
#: A predicted curve: black dots.
THEORY: Final = "#000000"

_RC: Final[dict[str, Any]] = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa4b1",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "legend.handlelength": 3.2,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "normlab",
}

_LOCK = threading.RLock()


@contextmanager
def style() -> Iterator[None]:
    """Give what is drawn inside the look of normlab's figures, whatever the caller's settings are.

    Matplotlib's settings belong to the process, so threads take turns here.
    """
    with _LOCK, matplotlib.style.context(["default", _RC]):
        yield


@dataclass(frozen=True)
class Look:
    """How a line is told from the others, with and without colour."""

    color: str
    marker: str
    dash: Dash


_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "p", "<", "h", ">", "*")
_DASHES: Final[tuple[Dash, ...]] = (
    "-",
    (0, (5, 1.6)),
    (0, (2.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (1, 1)),
    (0, (4, 1.2, 1, 1.2, 1, 1.2)),
)
#: Okabe and Ito's palette without its yellow, which is too light for a line on white.
_KINDS: Final = ("#0072b2", "#d55e00", "#007a5a", "#b0518d", "#1c2430", "#2f93c8", "#a9730a")
#: Light to dark: shallow to deep. Every colour is at least 3:1 against white.
_DEPTHS: Final = matplotlib.colors.LinearSegmentedColormap.from_list(
    "depths", ["#159a94", "#2a78b8", "#5450b0", "#6b2a86", "#28093a"]
)


#: A second number of the same model: lighter, dashed, with squares.
BESIDE: Final = Look("#a9730a", "s", (0, (5, 1.6)))


def depth_looks(depths: Sequence[int]) -> dict[int, Look]:
    """Return a look for each depth; the deepest is the darkest, and solid."""
    deepest_first = sorted(set(depths), reverse=True)
    shades = np.linspace(1.0, 0.0, len(deepest_first)) if len(deepest_first) > 1 else np.array([0.5])
    return {
        depth: Look(matplotlib.colors.to_hex(_DEPTHS(float(shade))), *_texture(place))
        for place, (depth, shade) in enumerate(zip(deepest_first, shades, strict=True))
    }


def kind_looks(panels: Sequence[str]) -> dict[str, Look]:
    """Return a look for each kind of model, for axes that hold several."""
    return {panel: Look(_KINDS[place % len(_KINDS)], *_texture(place)) for place, panel in enumerate(panels)}


def _texture(place: int) -> tuple[str, Dash]:
    return _MARKERS[place % len(_MARKERS)], _DASHES[place % len(_DASHES)]
