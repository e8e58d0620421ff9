"""A regime's interval beside the values that its rule accepts, as places along a line."""

import math
from dataclasses import dataclass

from normlab.claims import CLAIMS, RegimeVerdict


@dataclass(frozen=True)
class Tick:
    """A labelled value: ``place`` is in per cent of the line."""

    place: float
    label: str


@dataclass(frozen=True)
class Strip:
    """Where things lie along a line, in per cent of its length.

    Attributes:
        low: the interval's lower end.
        high: its upper end.
        effect: the estimate.
        accepted: the ends of the values that the rule accepts, if the rule has such.
        ticks: what is labelled.
    """

    low: float
    high: float
    effect: float
    accepted: tuple[float, float] | None
    ticks: tuple[Tick, ...]


def strip(claim: str, regime: RegimeVerdict) -> Strip | None:
    """Return the drawing of a regime's interval, or nothing where it has no interval of finite length."""
    numbers = (regime.low, regime.effect, regime.high)
    if not all(number is not None and math.isfinite(number) for number in numbers):
        return None
    accepted = _accepted(claim, regime)
    known = [*numbers, 0.0, *(bound for bound in accepted or () if math.isfinite(bound))]
    left, right = min(known), max(known)
    margin = 0.12 * (right - left) or 1.0
    left, right = left - margin, right + margin

    def place(value: float) -> float:
        return round(100 * (min(max(value, left), right) - left) / (right - left), 2)

    bounds = sorted({0.0, *(bound for bound in accepted or () if math.isfinite(bound))})
    ticks = tuple(Tick(place(bound), f"{bound:g}".replace("-", "−")) for bound in bounds)
    inside = (place(accepted[0]), place(accepted[1])) if accepted else None
    return Strip(place(regime.low), place(regime.high), place(regime.effect), inside, _apart(ticks))


def _accepted(claim: str, regime: RegimeVerdict) -> tuple[float, float] | None:
    """The values that the regime's rule accepts: within a margin of a target, or above a bound."""
    if claim not in CLAIMS:
        return None
    rules = [known.rule for known in CLAIMS[claim].regimes if regime.name.startswith(known.name)]
    if not rules:
        return None
    bound = getattr(rules[0], "bound", None)
    if bound is not None:
        return float(bound), math.inf
    target = float(getattr(rules[0], "target", 0.0))
    return target - rules[0].margin, target + rules[0].margin


def _apart(ticks: tuple[Tick, ...]) -> tuple[Tick, ...]:
    """Leave out labels that would touch the one before."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or tick.place - kept[-1].place >= 12:
            kept.append(tick)
    return tuple(kept)
