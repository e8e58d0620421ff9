"""Ratios of median times, with intervals that respect that the runs took turns."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import stats

from normlab.errors import DataError
from normlab.fits.intervals import Floats

#: A bootstrap interval of fewer samples covers less often than it says.
FEWEST_ROUNDS: Final = 25
_RESAMPLES: Final = 2000


@dataclass(frozen=True)
class Ratio:
    """How many times as long one function takes as another.

    Attributes:
        value: median seconds of the first over those of the second.
        low: lower end of the interval.
        high: its upper end.
        level: coverage of the interval.
        rounds: samples of each.
    """

    value: float
    low: float
    high: float
    level: float
    rounds: int


def ratio_of_medians(first: Floats, second: Floats, *, level: float = 0.95, seed: int = 0) -> Ratio:
    """Return median(first)/median(second) with a percentile bootstrap interval over rounds.

    Rounds are drawn as pairs, because both functions ran under the same conditions in a round.

    Args:
        first: seconds, ``[rounds]``.
        second: seconds of the same rounds.
        level: coverage of the interval.
        seed: of the bootstrap.

    Raises:
        DataError: fewer than :data:`FEWEST_ROUNDS` rounds, or two different numbers of them.

    >>> ratio_of_medians(np.full(25, 3.0), np.full(25, 2.0)).value
    1.5
    """
    if len(first) != len(second) or len(first) < FEWEST_ROUNDS:
        raise DataError(
            f"{len(first)} and {len(second)} rounds were timed: give both the same number, {FEWEST_ROUNDS} or more"
        )
    value = float(np.median(first) / np.median(second))
    if not np.ptp(first) and not np.ptp(second):  # nothing to resample
        return Ratio(value, value, value, level, len(first))
    found = stats.bootstrap(
        (first, second),
        _ratio,
        paired=True,
        vectorized=True,
        n_resamples=_RESAMPLES,
        confidence_level=level,
        method="percentile",
        random_state=np.random.default_rng(seed),  # the name in every scipy that is supported
    ).confidence_interval
    return Ratio(value, float(found.low), float(found.high), level, len(first))


def _ratio(first: Floats, second: Floats, axis: int = -1) -> Any:
    return np.median(first, axis=axis) / np.median(second, axis=axis)
