"""How many seeds it takes to decide."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from normlab.errors import DataError
from normlab.fits.intervals import Floats

#: A standard deviation needs this many seeds before an interval means anything.
FEWEST_SEEDS = 3


def seeds_to_decide(
    sd: float, distances: float | Sequence[float], *, alpha: float = 0.05, power: float = 0.8, most: int = 10_000
) -> int | None:
    """Return the smallest number of seeds that shows a mean to be ``distances`` away from its bounds.

    Each bound is tested by a one-sided t test at ``alpha``; its power comes from the noncentral t
    distribution, and the chances of missing any of the bounds are added up (exact for one bound,
    cautious for two).

    Args:
        sd: standard deviation over seeds of the number that is tested.
        distances: from the mean to each bound that must be excluded; both bounds of a margin for an
            equivalence.
        alpha: level of each one-sided test.
        power: probability of a decision.
        most: largest number worth naming.

    Returns:
        The number of seeds; ``None`` if the mean lies on or beyond a bound, or if more than ``most``
        seeds would be needed.

    Raises:
        DataError: a negative ``sd``, or a probability outside (0, 1).

    >>> seeds_to_decide(sd=1.0, distances=1.0, alpha=0.025)
    10
    """
    if not (sd >= 0 and 0 < alpha < 1 and 0 < power < 1):
        raise DataError(
            f"sd={sd}, alpha={alpha}, power={power}: give sd of at least 0 and probabilities between 0 and 1"
        )
    nearest = np.atleast_1d(np.asarray(distances, dtype=np.float64))
    if not (nearest > 0).all():
        return None
    guess = _normal_guess(sd / float(nearest.min()), alpha, power)
    if guess > most:
        return None
    # Student's t needs more seeds than the normal distribution, and never twice as many and 20.
    candidates = np.arange(max(FEWEST_SEEDS, guess), min(2 * guess + 20, most) + 1)
    for part in np.array_split(candidates, math.ceil(len(candidates) / 10)):
        enough = _missed(part, sd, nearest, alpha) <= 1 - power
        if enough.any():
            return int(part[enough.argmax()])
    return None


def _normal_guess(relative_sd: float, alpha: float, power: float) -> int:
    """The number of seeds if the standard deviation were known."""
    return math.ceil(((stats.norm.isf(alpha) + stats.norm.ppf(power)) * relative_sd) ** 2)


def _missed(seeds: NDArray[np.int64], sd: float, distances: Floats, alpha: float) -> Floats:
    """Probability that one of the tests does not reject, at most."""
    if sd == 0:
        return np.zeros(len(seeds))
    threshold = stats.t.isf(alpha, seeds - 1)
    # Beyond 30 standard errors the test cannot miss, and scipy's noncentral t stops converging.
    shift = np.minimum(np.sqrt(seeds) * distances[:, None] / sd, 30.0)
    return np.asarray(np.sum(stats.nct.cdf(threshold, seeds - 1, shift), axis=0))
