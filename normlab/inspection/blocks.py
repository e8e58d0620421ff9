"""Blocks that barely change the stream."""

from collections.abc import Iterable
from typing import Final

from normlab.digits import number
from normlab.inspection.finding import Finding, by_stack
from normlab.inspection.looking import Look
from normlab.recording import Address

#: A block is idle if it changes the median token by less than this share of its length.
IDLE: Final = 0.05
_THRESHOLD: Final = f"the median over tokens of ‖x_ℓ − x_{{ℓ−1}}‖/‖x_{{ℓ−1}}‖ is below {IDLE:g}"


def idle(look: Look) -> Finding:
    """Return the finding."""
    known = {at: value for at, value in look.changes.items() if value == value}
    rows = [{"stack": at.stack, "layer": at.layer, "change": value} for at, value in look.changes.items()]
    numbers = {"blocks": rows}
    stacks = {at.stack for at in look.streams}
    missing = [at for at in look.changes if at not in known]
    gap = f" In {_named(missing, stacks)} no token has a change: it is zero before, or not finite." if missing else ""
    if not known:
        return Finding("idle blocks", False, f"No block's change could be measured.{gap}", _THRESHOLD, numbers)
    least = min(known, key=known.__getitem__)
    few = [at for at, value in known.items() if value < IDLE]
    if not few:
        others = "every block" if not missing else "every other block"
        says = (
            f"None: {others} changes the median token by at least {number(known[least])} of its length "
            f"({_named([least], stacks)}).{gap}"
        )
        return Finding("idle blocks", False, says, _THRESHOLD, numbers)
    named = _named(few, stacks)
    says = (
        f"{named[0].upper()}{named[1:]} barely change{'s' if len(few) == 1 else ''} the stream: the median token moves "
        f"by less than {IDLE:.0%} of its length, least in {_named([least], stacks)} ({number(known[least])}).{gap}"
    ).replace("%", " %")
    return Finding("idle blocks", True, says, _THRESHOLD, numbers)


def _named(places: Iterable[Address], stacks: Iterable[str]) -> str:
    return by_stack(((at.stack, at.layer) for at in places if at.layer is not None), stacks)
