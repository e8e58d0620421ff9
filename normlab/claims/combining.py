"""From the verdicts of regimes to the verdict of a claim."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from normlab.claims.rules import Outcome

#: ``regimes``: worlds in which the statement may hold or fail; ``parts``: all must hold for it to hold.
Together: TypeAlias = Literal["regimes", "parts"]


def combine(outcomes: Sequence[Outcome], together: Together = "regimes") -> Outcome:
    """Return the verdict of a claim from those of its regimes, or of its parts.

    A regime that was not tested has no say. Regimes: all alike give that verdict; support in one and
    refutation in another are ``conditional``, whatever else is open; otherwise something is open and so
    is the claim. Parts: one that is refuted refutes the claim; all must be supported to support it.

    >>> combine(["supported", "refuted", "not-tested"])
    'conditional'
    """
    heard = {outcome for outcome in outcomes if outcome != "not-tested"}
    if not heard:
        return "not-tested"
    if len(heard) == 1:
        return heard.pop()
    if together == "parts":
        return "refuted" if "refuted" in heard else "inconclusive"
    return "conditional" if {"supported", "refuted"} <= heard or "conditional" in heard else "inconclusive"
