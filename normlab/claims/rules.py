"""Decision rules: what an interval over seeds must show, fixed before any data is seen."""

import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from normlab.fits import FEWEST_SEEDS, SeedInterval, p_above, p_below, seed_interval, seeds_to_decide
from normlab.fits.intervals import Floats

Outcome: TypeAlias = Literal["supported", "refuted", "conditional", "inconclusive", "not-tested"]

#: Seeds of a quick run: what to ask for where there are too few for a standard deviation.
QUICK_SEEDS = 8


@dataclass(frozen=True)
class Decision:
    """What a rule makes of one number a seed.

    Attributes:
        outcome: supported, refuted or inconclusive.
        interval: mean over seeds and the interval that decides.
        p: smallest α at which the rule would decide.
        seeds: where it is inconclusive, how many seeds would probably decide; ``None`` if no number would.
    """

    outcome: Outcome
    interval: SeedInterval
    p: float
    seeds: int | None = None


@runtime_checkable
class Rule(Protocol):
    """A rule: its words, its margin, and its decision."""

    @property
    def text(self) -> str:
        """The rule in words."""
        ...

    @property
    def margin(self) -> float:
        """The distance that decides."""
        ...

    @property
    def accepted(self) -> tuple[float, float]:
        """The lowest and the highest value that the rule accepts; infinite where it has no bound."""
        ...

    def decide(self, values: Floats, alpha: float) -> Decision:
        """Decide at level ``alpha`` from one number a seed."""
        ...


@dataclass(frozen=True)
class EqualWithin:
    """Equal to ``target`` within ``margin``: an equivalence test, in both directions.

    Attributes:
        target: the value that the statement asserts.
        margin: the distance from it that still counts as equal.
    """

    target: float
    margin: float

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"supported where the 1 − 2α interval lies within {self.target:g} ± {self.margin:g}, "
            f"refuted where it lies wholly outside, otherwise inconclusive"
        )

    @property
    def accepted(self) -> tuple[float, float]:
        """The lowest and the highest value that the rule accepts."""
        return self.target - self.margin, self.target + self.margin

    def decide(self, values: Floats, alpha: float) -> Decision:
        """Decide at level ``alpha`` from one number a seed."""
        interval = seed_interval(values, level=1 - 2 * alpha)
        below, above = self.target - self.margin, self.target + self.margin
        p_within = max(p_above(values, below), p_below(values, above))
        p_outside = min(p_below(values, below), p_above(values, above))
        distances = [interval.mean - below, above - interval.mean]
        outside = [-distance for distance in distances if distance < 0]
        return _decision(interval, alpha, p_within, p_outside, outside or distances)


@dataclass(frozen=True)
class ZeroWithin:
    """Zero within ``margin``, against any other value that the interval tells from zero.

    Attributes:
        margin: the distance from zero that still counts as zero.
    """

    margin: float

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"supported where the 1 − α interval lies within ± {self.margin:g}, "
            f"refuted where it excludes 0 and does not lie within ± {self.margin:g}, otherwise inconclusive"
        )

    @property
    def accepted(self) -> tuple[float, float]:
        """The lowest and the highest value that the rule accepts."""
        return -self.margin, self.margin

    def decide(self, values: Floats, alpha: float) -> Decision:
        """Decide at level ``alpha`` from one number a seed."""
        interval = seed_interval(values, level=1 - alpha)
        p_within = 2 * max(p_above(values, -self.margin), p_below(values, self.margin))
        p_nonzero = 2 * min(p_above(values, 0.0), p_below(values, 0.0))
        inside = abs(interval.mean) < self.margin
        distances = [self.margin - interval.mean, self.margin + interval.mean] if inside else [abs(interval.mean)]
        return _decision(interval, alpha, min(p_within, 1.0), p_nonzero, distances, one_sided=alpha / 2)


@dataclass(frozen=True)
class Above:
    """Above ``bound``: one-sided, in both directions.

    Attributes:
        bound: what the mean must exceed.
    """

    bound: float

    @property
    def margin(self) -> float:
        """The bound's distance from zero."""
        return abs(self.bound)

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"supported where the lower 1 − α bound is above {self.bound:g}, "
            f"refuted where the upper 1 − α bound is below it, otherwise inconclusive"
        )

    @property
    def accepted(self) -> tuple[float, float]:
        """The lowest and the highest value that the rule accepts."""
        return self.bound, math.inf

    def decide(self, values: Floats, alpha: float) -> Decision:
        """Decide at level ``alpha`` from one number a seed."""
        interval = seed_interval(values, level=1 - 2 * alpha)
        p_yes, p_no = p_above(values, self.bound), p_below(values, self.bound)
        return _decision(interval, alpha, p_yes, p_no, [abs(interval.mean - self.bound)])


@dataclass(frozen=True)
class Below:
    """Below ``bound``: one-sided, in both directions.

    Attributes:
        bound: what the mean must stay under.
    """

    bound: float

    @property
    def margin(self) -> float:
        """The bound's distance from zero."""
        return abs(self.bound)

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"supported where the upper 1 − α bound is below {self.bound:g}, "
            f"refuted where the lower 1 − α bound is above it, otherwise inconclusive"
        )

    @property
    def accepted(self) -> tuple[float, float]:
        """The lowest and the highest value that the rule accepts."""
        return -math.inf, self.bound

    def decide(self, values: Floats, alpha: float) -> Decision:
        """Decide at level ``alpha`` from one number a seed."""
        interval = seed_interval(values, level=1 - 2 * alpha)
        p_yes, p_no = p_below(values, self.bound), p_above(values, self.bound)
        return _decision(interval, alpha, p_yes, p_no, [abs(interval.mean - self.bound)])


def _decision(
    interval: SeedInterval,
    alpha: float,
    p_supported: float,
    p_refuted: float,
    distances: list[float],
    one_sided: float | None = None,
) -> Decision:
    if interval.n < FEWEST_SEEDS:
        return Decision("inconclusive", interval, 1.0, QUICK_SEEDS)
    if p_supported <= alpha:
        return Decision("supported", interval, p_supported)
    if p_refuted <= alpha:
        return Decision("refuted", interval, p_refuted)
    seeds = seeds_to_decide(interval.sd, distances, alpha=one_sided or alpha) if math.isfinite(interval.sd) else None
    # The observed mean is a guess: never answer with a number of seeds that was just tried.
    seeds = None if seeds is None else max(seeds, interval.n + 1)
    return Decision("inconclusive", interval, min(p_supported, p_refuted), seeds)
