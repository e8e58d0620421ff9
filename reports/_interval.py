"""A regime's interval beside the values that its rule accepts, as places along a line."""

import math
from dataclasses import dataclass

from normlab.claims import CLAIMS, RegimeVerdict
from normlab.claims.rules import Rule
from normlab.digits import minus


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
    ticks = tuple(Tick(place(bound), minus(f"{bound:.3g}")) for bound in bounds)
    inside = (place(accepted[0]), place(accepted[1])) if accepted else None
    return Strip(place(regime.low), place(regime.high), place(regime.effect), inside, _apart(ticks))


def _accepted(claim: str, regime: RegimeVerdict) -> tuple[float, float] | None:
    """The values that the regime's rule accepts."""
    rule = _rule(claim, regime)
    return None if rule is None else rule.accepted


def _rule(claim: str, regime: RegimeVerdict) -> Rule | None:
    """The rule that decided: a regime's name may go on with what tells its groups apart."""
    known = CLAIMS[claim].regimes if claim in CLAIMS else ()
    fitting = [entry for entry in known if regime.name.startswith(entry.name)]
    return max(fitting, key=lambda entry: len(entry.name)).rule if fitting else None


def exact(regime: RegimeVerdict) -> bool:
    """Whether every draw decided on its own: then the span is that of the draws, and nothing is left to chance."""
    return regime.level == 1


def extreme(claim: str, regime: RegimeVerdict) -> str:
    """Return the draw that decides an exact statement, with its limit, such as ``largest of 8 draws: 5.0e-6``."""
    rule, draws = _rule(claim, regime), f"{regime.n_seeds} {'draw' if regime.n_seeds == 1 else 'draws'}"
    low, high = (-math.inf, math.inf) if rule is None else rule.accepted
    parts = []
    if math.isfinite(low):
        parts.append(f"smallest of {draws}: {compact(regime.low)} (limit {_limit(low)})")
    if math.isfinite(high):
        parts.append(f"largest of {draws}: {compact(regime.high)} (limit {_limit(high)})")
    return "; ".join(parts) or f"{draws}, from {compact(regime.low)} to {compact(regime.high)}"


def compact(value: float) -> str:
    """Return ``value`` in few digits, one that is tiny or huge as ``5.0e-6``."""
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}"
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(power)}"


def _limit(value: float) -> str:
    mantissa, power = f"{value:.6e}".split("e")
    return f"{float(mantissa):g}e{int(power)}" if value and not 1e-2 <= abs(value) < 1e4 else f"{value:g}"


def _apart(ticks: tuple[Tick, ...]) -> tuple[Tick, ...]:
    """Leave out labels that would touch the one before."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or tick.place - kept[-1].place >= 12:
            kept.append(tick)
    return tuple(kept)
