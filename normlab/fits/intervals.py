"""Student t intervals and one-sided tests over seeds: one number a seed, and seeds are independent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from normlab.errors import DataError

Floats: TypeAlias = NDArray[np.float64]
#: Numbers as a notebook holds them.
Values: TypeAlias = Sequence[float] | NDArray[Any] | pd.Series


@dataclass(frozen=True)
class SeedInterval:
    """The mean over seeds of one number a seed, and its two-sided Student t interval.

    Attributes:
        mean: average over seeds.
        low: lower end; -inf with a single seed, which bounds nothing.
        high: upper end; inf with a single seed.
        level: probability with which such an interval covers the mean over all seeds.
        n: number of seeds.
        sd: standard deviation over seeds (n − 1); NaN with a single seed.
    """

    mean: float
    low: float
    high: float
    level: float
    n: int
    sd: float

    @property
    def se(self) -> float:
        """Standard error of the mean, sd/√n."""
        return self.sd / math.sqrt(self.n)

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] ({self.level:.0%}, {self.n} seeds)"


def seed_interval(values: Values, *, level: float = 0.95) -> SeedInterval:
    """Return mean ± t_{(1+level)/2, n−1}·sd/√n of one number a seed.

    Its lower end alone is the lower bound at level ``(1 + level)/2``: a one-sided bound at 1 − α is an end
    of the interval at 1 − 2α.

    Args:
        values: one finite number a seed.
        level: coverage, between 0 and 1.

    Raises:
        DataError: no value, a value that is not finite, or a level outside (0, 1).

    >>> print(seed_interval([1.0, 2.0, 3.0]))
    2.000 [-0.484, 4.484] (95%, 3 seeds)
    """
    numbers = one_a_seed(values)
    if not 0 < level < 1:
        raise DataError(f"level is {level}: give a probability between 0 and 1, such as 0.95")
    mean, n = float(numbers.mean()), len(numbers)
    if n == 1:
        return SeedInterval(mean, -math.inf, math.inf, level, n, math.nan)
    sd = float(numbers.std(ddof=1))
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * sd / math.sqrt(n)
    return SeedInterval(mean, mean - half, mean + half, level, n, sd)


def p_above(values: Values, bound: float) -> float:
    """Return the p-value of the t test of "the mean is at most ``bound``": small where the mean is above.

    Raises:
        DataError: no value, or a value that is not finite.
    """
    interval = seed_interval(values)
    if interval.n == 1:
        return 1.0
    distance = interval.mean - bound
    if interval.sd == 0:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(interval.n - 1, -distance / interval.se))


def p_below(values: Values, bound: float) -> float:
    """Return the p-value of the t test of "the mean is at least ``bound``": small where the mean is below.

    Raises:
        DataError: no value, or a value that is not finite.
    """
    return p_above(-one_a_seed(values), -bound)


def one_a_seed(values: Values) -> Floats:
    """Return ``values`` as floats.

    Raises:
        DataError: there is none, or one is not finite.
    """
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if not len(numbers):
        raise DataError("there is no value: give one number a seed")
    if not np.isfinite(numbers).all():
        raise DataError(
            f"{int((~np.isfinite(numbers)).sum())} of {len(numbers)} values are not finite: "
            f"give one finite number a seed, and report the seeds that have none"
        )
    return numbers
