"""The root mean square of every token, kept for the median: one float a token, or a histogram of many."""

from dataclasses import dataclass
from typing import Final

import numpy as np

#: Above this number of tokens, a histogram over the logarithm replaces them.
KEPT: Final = 65_536
#: Width of a bin: its middle is at most 0.4 % from either edge.
LOG_BIN: Final = 2 * np.log(1.004)
#: The bin of a token that is exactly zero.
_ZERO: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Radii:
    """Root mean squares of tokens.

    Attributes:
        values: one a token, while there are few.
        bins: numbers of the occupied bins, once there are many, ascending.
        counts: how many tokens each holds.
    """

    values: np.ndarray
    bins: np.ndarray | None = None
    counts: np.ndarray | None = None

    @property
    def exact(self) -> bool:
        """Whether every value is kept."""
        return self.bins is None

    def joined(self, other: "Radii") -> "Radii":
        """Return both together."""
        if self.exact and other.exact and self.values.size + other.values.size <= KEPT:
            return Radii(np.concatenate([self.values, other.values]))
        one, two = self.binned(), other.binned()
        assert one.bins is not None and two.bins is not None and one.counts is not None and two.counts is not None
        bins, places = np.unique(np.concatenate([one.bins, two.bins]), return_inverse=True)
        counts = np.bincount(places, weights=np.concatenate([one.counts, two.counts])).astype(np.int64)
        return Radii(np.empty(0, np.float32), bins, counts)

    def binned(self) -> "Radii":
        """Return the histogram."""
        if not self.exact:
            return self
        values = self.values.astype(np.float64)
        bins = np.full(values.shape, _ZERO)
        above = values > 0
        bins[above] = np.floor(np.log(values[above]) / LOG_BIN).astype(np.int64)
        return Radii(np.empty(0, np.float32), *np.unique(bins, return_counts=True))

    def median(self) -> float:
        """Return the median; of an even number, the mean of the two middle values. NaN of none."""
        if self.bins is None or self.counts is None:
            return float(np.median(self.values.astype(np.float64))) if self.values.size else float("nan")
        ends = np.cumsum(self.counts)
        middle = [(ends[-1] - 1) // 2, ends[-1] // 2]
        bins = self.bins[np.searchsorted(ends, middle, side="right")]
        return float(np.mean([0.0 if bin == _ZERO else np.exp((bin + 0.5) * LOG_BIN) for bin in bins]))


def radii_of(rows: np.ndarray) -> list[Radii]:
    """Keep the values of each row that are not NaN, in float32 where that holds them to rounding."""
    with np.errstate(over="ignore", invalid="ignore"):
        small = rows.astype(np.float32)
        held = (np.abs(small - rows) <= 1e-7 * rows) | np.isnan(rows)
    kept = small if held.all() else rows
    gaps = np.isnan(rows).any(axis=1)
    radii = [Radii(row[~np.isnan(row)] if gap else row) for row, gap in zip(kept, gaps, strict=True)]
    return [one.binned() if one.values.size > KEPT else one for one in radii]


def medians(many: list[Radii]) -> np.ndarray:
    """Return the median of each; those of equal length are sorted together."""
    result = np.full(len(many), np.nan)
    by_length: dict[int, list[int]] = {}
    for index, radii in enumerate(many):
        if radii.exact and radii.values.size:
            by_length.setdefault(radii.values.size, []).append(index)
        else:
            result[index] = radii.median()
    for length, indices in by_length.items():
        stacked = np.stack([many[index].values for index in indices])
        middle = (length - 1) // 2, length // 2
        parted = np.partition(stacked, middle, axis=1)[:, middle].astype(np.float64)
        result[indices] = parted.mean(axis=1)
    return result
