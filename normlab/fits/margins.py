"""Equivalence: "does not depend on" is a claim that an interval within a margin can support."""

from dataclasses import dataclass
from typing import Literal

from normlab.errors import DataError
from normlab.fits.intervals import Values, p_above, p_below, seed_interval


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided t tests (TOST) of a mean over seeds against ``target`` ± ``margin``.

    Attributes:
        mean: average over seeds.
        low: lower end of the interval at level 1 − 2α, whose two ends are one-sided bounds at 1 − α.
        high: its upper end.
        level: 1 − 2α.
        n: number of seeds.
        target: the value that the mean is compared with.
        margin: the distance from it that still counts as equal.
        alpha: probability of each false outcome.
        p_equivalent: smallest α at which the interval lies within the margin.
        p_different: smallest α at which it lies wholly outside.
    """

    mean: float
    low: float
    high: float
    level: float
    n: int
    target: float
    margin: float
    alpha: float
    p_equivalent: float
    p_different: float

    @property
    def outcome(self) -> Literal["equivalent", "different", "undecided"]:
        """What the interval shows: within the margin, wholly outside it, or neither."""
        if self.p_equivalent <= self.alpha:
            return "equivalent"
        return "different" if self.p_different <= self.alpha else "undecided"


def equivalence(values: Values, margin: float = 0.1, *, target: float = 0.0, alpha: float = 0.05) -> Equivalence:
    """Test whether the mean over seeds equals ``target`` within ``margin``.

    Equivalent: both one-sided tests reject, which is the same as the 1 − 2α interval lying within
    ``target`` ± ``margin``. Different: the interval lies wholly outside. (Schuirmann 1987.)

    Args:
        values: one number a seed, such as the slopes of :func:`normlab.fits.exponent`.
        margin: 0.1 on a log-log slope is 7 % a doubling.
        target: the value to be equal to.
        alpha: probability of a false "equivalent" on the margin's edge, and of a false "different" there.

    Raises:
        DataError: a margin that is not positive, an alpha outside (0, 0.5), or values that are not finite.
    """
    if not margin > 0:
        raise DataError(f"margin is {margin}: give the positive distance that still counts as equal, such as 0.1")
    if not 0 < alpha < 0.5:
        raise DataError(f"alpha is {alpha}: give a probability between 0 and 0.5, such as 0.05")
    interval = seed_interval(values, level=1 - 2 * alpha)
    below, above = target - margin, target + margin
    return Equivalence(
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        level=interval.level,
        n=interval.n,
        target=target,
        margin=margin,
        alpha=alpha,
        p_equivalent=max(p_above(values, below), p_below(values, above)),
        p_different=min(p_below(values, below), p_above(values, above)),
    )
