"""Axes of depths and of scales: where the ticks stand and how they read."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Mantissas of the ticks within a decade, from coarse to fine.
_MANTISSAS: Final = (
    (1.0,),
    (1.0, 3.0),
    (1.0, 2.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0),
)
#: From this ratio of depths on, layers are spaced by doubling: a linear axis would hide the shallow models.
_WIDE: Final = 8


class ScaleLocator(LogLocator):
    """Ticks of a logarithmic axis that read well over one octave or over thirty decades.

    The axis never spans less than a factor of two, so that rounding noise on a constant does not look like a law.
    """

    def nonsingular(self, vmin: float, vmax: float) -> tuple[float, float]:
        """Widen the limits to a factor of two about their middle."""
        low, high = (float(limit) for limit in super().nonsingular(vmin, vmax))
        if high / low >= 2:
            return low, high
        middle = float(np.sqrt(low * high))
        return middle / 2**0.5, middle * 2**0.5

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return the first set of five to seven ticks, from the coarsest on; fewer where no set has five."""
        low, high = sorted((vmin, vmax))
        decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        ticks = np.array([low, high])
        for mantissas in _MANTISSAS:
            ticks = np.sort(np.outer(10.0**decades, mantissas).ravel())
            ticks = ticks[(ticks >= low * 0.999) & (ticks <= high * 1.001)]
            if len(ticks) >= 5:
                break
        return [float(tick) for tick in ticks[:: max(1, -(-len(ticks) // 7))]]


def scale_text(value: float) -> str:
    """Return how a tick reads: plain between 0.001 and 9999, else with a power of ten."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    exponent = int(np.floor(np.log10(abs(value)) + 1e-9))
    mantissa = value / 10.0**exponent
    power = f"10{str(exponent).translate(_SUPERSCRIPTS)}"
    return power if abs(mantissa - 1) < 1e-6 else f"{mantissa:.3g}·{power}"


def log_axis(ax: Axes, which: str) -> None:
    """Make the axis ``x`` or ``y`` of ``ax`` logarithmic."""
    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(ScaleLocator())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: scale_text(value)))


def depth_axis(ax: Axes, depths: Sequence[int]) -> None:
    """Make x an axis of L, spaced by doubling, with a tick for each depth that there is room for."""
    ax.set_xscale("log", base=2)
    shown = sorted(set(depths))
    while len(shown) > 9:
        shown = shown[::-2][::-1]
    _integers(ax, shown)


def layer_axis(ax: Axes, depths: Sequence[int]) -> None:
    """Make x an axis of ℓ: linear, or spaced by doubling (and linear from 0 to 1) where the depths differ much."""
    deepest = max(depths)
    if deepest < 100 and deepest < _WIDE * min(depths):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        return
    ax.set_xscale("symlog", base=2, linthresh=1, linscale=0.5)
    doublings = [2**power for power in range(deepest.bit_length())]
    while len(doublings) > 7:
        doublings = doublings[::2]
    _integers(ax, [0, *doublings])


def _integers(ax: Axes, values: Sequence[int]) -> None:
    ax.xaxis.set_major_locator(FixedLocator([float(value) for value in values]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
