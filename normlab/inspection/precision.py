"""Head-room of fp16, and what a sum in bfloat16 loses."""

import math
from typing import Any, Final

from normlab.digits import number
from normlab.errors import counted
from normlab.inspection.agreeing import percent
from normlab.inspection.finding import Finding, by_stack, listed, place
from normlab.inspection.looking import Look
from normlab.recording import Address

#: The largest number of fp16.
FP16: Final = 65504.0
#: Fewer doublings than this before fp16 overflows are few.
FEW_DOUBLINGS: Final = 3.0
#: A sum in bfloat16 that loses more than this of the median token's update loses much.
LOST: Final = 0.1


def doublings(largest: float) -> float:
    """Return how often ``largest`` can be doubled before it exceeds fp16's largest number; negative if it does."""
    return math.log2(FP16 / largest) if largest > 0 else math.inf


def head_room(look: Look) -> Finding:
    """Return the finding on fp16's range: of what modules take and give, and of attention logits, which none gives."""
    peak, (logit, head, broken) = look.peak, _logits(look)
    largest, wins = max(peak.max_abs, logit), logit > peak.max_abs
    left = doublings(largest)
    threshold = f"fewer than {FEW_DOUBLINGS:g} doublings are left, or an entry is not finite"
    numbers = {
        "max_abs": largest,
        "module": "" if wins else peak.module,
        "side": "" if wins else peak.side,
        "head": head if wins else "",
        "doublings": left,
        "nonfinite": peak.nonfinite,
        "nonfinite_logits": broken,
    }
    odd = peak.nonfinite + broken
    what = f"{f'a logit of {head}' if wins else f'in what {peak.module} {peak.side}'} ({number(largest)})"
    says = _range(left, what, odd > 0) if largest else "No entry is finite." if odd else "Every entry is zero."
    if odd:
        kinds = [(peak.nonfinite, "entry", "entries"), (broken, "logit", "logits")]
        counts = [f"{count} {one if count == 1 else more}" for count, one, more in kinds if count]
        says += f" {listed(counts)} {'is' if odd == 1 else 'are'} not finite."
    if look.unseen:
        says += f" The logits of {counted(len(look.unseen), 'attention sub-layer')} were not seen, and may be larger."
    return Finding("range of fp16", left < FEW_DOUBLINGS or odd > 0, says, threshold, numbers)


def _logits(look: Look) -> tuple[float, str, int]:
    """Return the largest finite logit, the head that has it, and the number of logits that are not finite."""
    stacks, largest, where, broken = {at.stack for at in look.streams}, 0.0, "", 0
    for at, heads in look.heads.items():
        for head, one in enumerate(heads):
            broken += one.nonfinite
            if one.max_abs > largest:  # a head without a finite logit has NaN
                largest, where = one.max_abs, f"head {head} in {place(at, stacks)}"
    return largest, where, broken


def _range(left: float, what: str, odd: bool) -> str:
    if left < 0:
        fold = number(2**-left)
        return f"fp16 overflows: the largest entry of all is {what}, {fold}-fold above its largest number, 65504."
    if odd:
        return (
            "How many doublings are left before fp16 overflows cannot be told where entries are not finite: the "
            f"largest that is finite is {what}, {number(left)} doublings below 65504."
        )
    return f"{number(left)} doublings are left before fp16 overflows: the largest entry of all is {what}."


def rounding(look: Look) -> Finding:
    """Return the finding on residual sums in bfloat16."""
    threshold = f"a sum in bfloat16 loses more than {LOST:.0%} of the median token's update".replace("%", " %")
    rows = [{**where(at), "all_tokens": pooled, "median_token": median} for at, (pooled, median) in look.lost.items()]
    numbers = {"updates": rows}
    stacks = {at.stack for at in look.streams}
    known = {at: median for at, (_, median) in look.lost.items() if median == median}
    blank = [(at.stack, at.layer) for at in look.lost if at not in known and at.layer is not None]
    # An update of zero loses nothing and has no share.
    gap = f" No share can be told in {by_stack(blank, stacks)}, whose updates are zero or not finite." if blank else ""
    if not known:
        says = gap.strip() or _unseen(look)
        return Finding("rounding of bf16", False, says, threshold, numbers)
    much = [at for at, median in known.items() if median > LOST]
    worst = max(known, key=known.__getitem__)
    says = (
        f"A residual sum in bfloat16 loses at most {percent(known[worst])} of the median token's update "
        f"(in {place(worst, stacks)})."
    )
    if much:
        lose = "sum" if len(known) == 1 else "sums"
        says = (
            f"{len(much)} of {len(known)} residual {lose} in bfloat16 lose{'s' if len(much) == 1 else ''} more than "
            f"{percent(LOST)} of the median token's update, most in {place(worst, stacks)} "
            f"({percent(known[worst])})."
        )
    return Finding("rounding of bf16", bool(much), says + gap, threshold, numbers)


def _unseen(look: Look) -> str:
    """Say what was seen instead of a pair of terms: without both of them what their sum loses cannot be told."""
    if not look.streams:
        return "Not told: no residual sum was seen, and no stream."
    return (
        f"Not told: the stream was seen at {counted(len(look.streams), 'place')}, but no modules show both terms of a "
        "residual sum, in an order in which they can be compared."
    )


def where(at: Address) -> dict[str, Any]:
    """Return the fields of an address that say which sub-layer it is."""
    return {"stack": at.stack, "layer": at.layer, "sublayer": at.sublayer, "name": at.name}
