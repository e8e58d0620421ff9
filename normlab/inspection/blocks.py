"""Blocks that barely change the stream."""

from typing import Final

from normlab.inspection.finding import Finding, blocks, listed, number
from normlab.inspection.looking import Look

#: A block is idle if it changes the median token by less than this share of its length.
IDLE: Final = 0.05
_THRESHOLD: Final = f"the median over tokens of ‖x_ℓ − x_{{ℓ−1}}‖/‖x_{{ℓ−1}}‖ is below {IDLE:g}"


def idle(look: Look) -> Finding:
    """Return the finding."""
    known = {at: value for at, value in look.changes.items() if value == value}
    rows = [{"stack": at.stack, "layer": at.layer, "change": value} for at, value in known.items()]
    if not known:
        return Finding("idle blocks", False, "No block's change could be measured.", _THRESHOLD, {"blocks": rows})
    least = min(known, key=known.__getitem__)
    few = {at: value for at, value in known.items() if value < IDLE}
    if not few:
        says = (
            f"None: every block changes the median token by at least {number(known[least])} of its length "
            f"(block {least.layer})."
        )
        return Finding("idle blocks", False, says, _THRESHOLD, {"blocks": rows})
    stacks = dict.fromkeys(at.stack for at in known)
    parts = []
    for stack in stacks:
        own = [at.layer for at in few if at.stack == stack and at.layer is not None]
        if own:
            parts.append(blocks(own) + (f" of the {stack}" if len(stacks) > 1 else ""))
    says = (
        f"{listed(parts).capitalize()} barely change{'s' if len(few) == 1 else ''} the stream: the median token moves "
        f"by less than {IDLE:.0%} of its length, least in block {least.layer} ({number(known[least])})."
    ).replace("%", " %")
    return Finding("idle blocks", True, says, _THRESHOLD, {"blocks": rows})
