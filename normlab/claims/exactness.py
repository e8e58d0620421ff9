"""Decision rules for exact statements: every draw must obey, and one that does not refutes."""

import math
from dataclasses import dataclass

from normlab.claims.rules import Decision
from normlab.fits import SeedInterval
from normlab.fits.intervals import Floats


@dataclass(frozen=True)
class AtMost:
    """At most ``bound`` in every draw: an identity, within rounding.

    Attributes:
        bound: the largest deviation that rounding explains.
    """

    bound: float

    @property
    def margin(self) -> float:
        """The bound."""
        return abs(self.bound)

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"supported where it is at most {self.bound:g} in every draw, refuted by one draw in which it is more"

    @property
    def accepted(self) -> tuple[float, float]:
        """The lowest and the highest value that the rule accepts."""
        return -math.inf, self.bound

    def decide(self, values: Floats, alpha: float) -> Decision:
        """Decide from one number a draw; nothing is left to chance, whatever ``alpha``."""
        return _exact(values, bool((values <= self.bound).all()))


@dataclass(frozen=True)
class AtLeast:
    """At least ``bound`` in every draw: what is asserted happens, and visibly.

    Attributes:
        bound: the smallest effect that counts.
    """

    bound: float

    @property
    def margin(self) -> float:
        """The bound."""
        return abs(self.bound)

    @property
    def text(self) -> str:
        """The rule in words."""
        return f"supported where it is at least {self.bound:g} in every draw, refuted by one draw in which it is less"

    @property
    def accepted(self) -> tuple[float, float]:
        """The lowest and the highest value that the rule accepts."""
        return self.bound, math.inf

    def decide(self, values: Floats, alpha: float) -> Decision:
        """Decide from one number a draw; nothing is left to chance, whatever ``alpha``."""
        return _exact(values, bool((values >= self.bound).all()))


def _exact(values: Floats, holds: bool) -> Decision:
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    span = SeedInterval(float(values.mean()), float(values.min()), float(values.max()), 1.0, len(values), spread)
    return Decision("supported" if holds else "refuted", span, 0.0)
