"""What a finite width does to a regime's statistic: the same in narrower models, and whether it comes closer."""

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from scipy import special

from normlab.claims.rules import Outcome, Rule
from normlab.digits import minus

#: Coverage of the interval of a change from one width to the next; it decides no verdict.
LEVEL: Final = 0.95

#: What became of the distance from the value that the rule asserts.
Deviation: TypeAlias = Literal["shrinks", "grows", "level", ""]


@dataclass(frozen=True, kw_only=True)
class Size:
    """A statistic in models of one width.

    Attributes:
        width: of the models.
        deepest: depth of the deepest.
        verdict: what the rule makes of this width alone.
        effect: mean over seeds.
        low: lower end of the interval that decides.
        high: its upper end.
        sd: standard deviation over seeds.
        n_seeds: number of seeds.
    """

    width: int
    deepest: int
    verdict: Outcome
    effect: float
    low: float
    high: float
    sd: float
    n_seeds: int


@dataclass(frozen=True, kw_only=True)
class FiniteSize:
    """A statistic at several widths.

    Attributes:
        sizes: the widest first.
        target: the value that the rule asserts, if it asserts one.
        change: effect of the widest minus that of the next.
        change_low: lower end of the change's interval, by Welch's t at :data:`LEVEL`.
        change_high: its upper end.
        deviation: whether the distance from the target ``shrinks`` or ``grows`` with the width, or stays ``level``
            as far as the seeds can tell; empty without a target.
        agrees: whether every width gives the same verdict.
    """

    sizes: tuple[Size, ...]
    target: float | None
    change: float
    change_low: float
    change_high: float
    deviation: Deviation
    agrees: bool

    @property
    def words(self) -> str:
        """The check in words, such as ``0.48 at width 64, 0.49 at 128: the deviation from 0.5 shrinks``."""
        values = ", ".join(f"{size.effect:.3g} at width {size.width}" for size in reversed(self.sizes))
        said = {
            "shrinks": f"the deviation from {self.target:g} shrinks" if self.target is not None else "",
            "grows": f"the deviation from {self.target:g} grows" if self.target is not None else "",
            "level": "no change that the seeds can tell",
            "": "no change that the seeds can tell"
            if self.change_low <= 0 <= self.change_high
            else f"a change of {self.change:+.2g} [{self.change_low:+.2g}, {self.change_high:+.2g}]",
        }[self.deviation]
        other = "" if self.agrees else f"; width {self.sizes[-1].width} alone is {self.sizes[-1].verdict}"
        return minus(f"{values}: {said}{other}")


def finite_size(sizes: tuple[Size, ...], rule: Rule) -> FiniteSize | None:
    """Compare the widest models with the next narrower ones; nothing where there is one width.

    Args:
        sizes: the widest first.
        rule: of the regime; its target is what a deviation is measured from, 0 for "zero within".
    """
    if len(sizes) < 2:
        return None
    wide, narrow = sizes[:2]
    half = _half_width(wide, narrow)
    change, target = wide.effect - narrow.effect, _target(rule)
    return FiniteSize(
        sizes=sizes,
        target=target,
        change=change,
        change_low=change - half,
        change_high=change + half,
        deviation="" if target is None else _deviation(wide.effect - target, narrow.effect - target, half),
        agrees=len({size.verdict for size in sizes}) == 1,
    )


def _target(rule: Rule) -> float | None:
    """The value that a rule asserts: the middle of what it accepts, where that has two ends."""
    low, high = rule.accepted
    return (low + high) / 2 if math.isfinite(low) and math.isfinite(high) else None


def _deviation(wide: float, narrow: float, half: float) -> Deviation:
    shrunk = abs(narrow) - abs(wide)
    if not abs(shrunk) > half:
        return "level"
    return "shrinks" if shrunk > 0 else "grows"


def _half_width(first: Size, second: Size) -> float:
    """Half the interval of a difference of two means with variances of their own (Welch 1947)."""
    parts = [size.sd**2 / size.n_seeds for size in (first, second)]
    if any(math.isnan(part) for part in parts):
        return math.inf
    if not sum(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(
        part**2 / (size.n_seeds - 1) for part, size in zip(parts, (first, second), strict=True)
    )
    return float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(sum(parts))
