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


def mean_of(samples: np.ndarray, *, level: float = 0.95) -> Estimate:
    """Return the mean of ``samples`` with a Student t interval.

    Args:
        samples: independent unbiased estimates, at least two.
        level: confidence level.
    """
    count, value = len(samples), float(samples.mean())
    se = float(samples.std(ddof=1) / np.sqrt(count))
    reach = float(stats.t.ppf(0.5 + level / 2, count - 1)) * se
    return Estimate(value, se, value - reach, value + reach, count, level)


def root_of_mean(samples: np.ndarray, *, level: float = 0.95) -> Estimate:
    """Return √(mean of ``samples``) with a Student t interval for the mean, carried through the root.

    The root's standard error is that of the mean divided by 2√mean (first order).

    Args:
        samples: independent unbiased estimates of a non-negative number.
        level: confidence level.
    """
    mean = mean_of(samples, level=level)
    value = float(np.sqrt(mean.value))
    return Estimate(
        value=value,
        se=mean.se / (2 * value) if value else 0.0,
        low=float(np.sqrt(max(mean.low, 0.0))),
        high=float(np.sqrt(mean.high)),
        probes=mean.probes,
        level=level,
    )


def half_log_of_mean(samples: np.ndarray, *, level: float = 0.95) -> Estimate:
    """Return ½ ln(mean of ``samples``) with a Student t interval for the mean, carried through the logarithm.

    The logarithm of a mean of K samples lies low by (se/mean)²/2 in expectation; that is put back. Its standard error
    is that of the mean divided by 2·mean (first order).

    Args:
        samples: independent unbiased estimates of a positive number.
        level: confidence level.
    """
    mean = mean_of(samples, level=level)
    with np.errstate(divide="ignore"):
        low, middle, high = (float(np.log(max(one, 0.0)) / 2) for one in (mean.low, mean.value, mean.high))
    relative = mean.se / mean.value if mean.value else 0.0
    lift = relative**2 / 4
    return Estimate(middle + lift, relative / 2, low + lift, high + lift, mean.probes, level)
