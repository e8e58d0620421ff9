"""An estimated number with its uncertainty."""

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A number estimated from random probes.

    Attributes:
        value: the estimate.
        se: its standard error, in the units of ``value``.
        low: lower end of the interval at ``level``.
        high: upper end of the interval.
        probes: number of independent probes.
        level: confidence level of the interval.
    """

    value: float
    se: float
    low: float
    high: float
    probes: int
    level: float = 0.95


def root_of_mean(samples: np.ndarray, *, level: float = 0.95) -> Estimate:
    """Return √(mean of ``samples``) with a Student t interval for the mean, carried through the root.

    The root's standard error is that of the mean divided by 2√mean (first order).

    Args:
        samples: independent unbiased estimates of a non-negative number.
        level: confidence level.
    """
    mean, count = float(samples.mean()), len(samples)
    se = float(samples.std(ddof=1) / np.sqrt(count))
    reach = float(stats.t.ppf(0.5 + level / 2, count - 1)) * se
    value = float(np.sqrt(mean))
    return Estimate(
        value=value,
        se=se / (2 * value) if value else 0.0,
        low=float(np.sqrt(max(mean - reach, 0.0))),
        high=float(np.sqrt(mean + reach)),
        probes=count,
        level=level,
    )
