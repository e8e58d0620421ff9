"""Head-room of attention logits and of fp16, and what a sum in bfloat16 loses."""

import math
from typing import Any, Final

from normlab.inspection.finding import Finding, listed, number, place
from normlab.inspection.looking import Look
from normlab.recording import Address

#: The largest number of fp16.
FP16: Final = 65504.0
#: A head's logits are large beyond this: float32's exp(−104) is zero, so that its softmax can be one-hot.
LARGE_LOGIT: Final = 100.0
#: Fewer doublings than this before fp16 overflows are few.
FEW_DOUBLINGS: Final = 3.0
#: A sum in bfloat16 that loses more than this of the median token's update loses much.
LOST: Final = 0.1
_NAMED: Final = 5


def doublings(largest: float) -> float:
    """Return how often ``largest`` can be doubled before it exceeds fp16's largest number; negative if it does."""
    return math.log2(FP16 / largest) if largest > 0 else math.inf


def logits(look: Look) -> Finding:
    """Return the finding on attention logits."""
    threshold = f"a head has a logit beyond ±{LARGE_LOGIT:g}"
    rows = [
        {
            **_where(at),
            "head": head,
            "max_abs": one.max_abs,
            "rms": one.mean_square**0.5,
            "doublings": doublings(one.max_abs),
        }
        for at, heads in look.heads.items()
        for head, one in enumerate(heads)
        if one.pairs
    ]
    missing = [f"{at.sublayer} of block {at.layer}" for at in look.unseen]
    numbers: dict[str, Any] = {"heads": rows, "unseen": missing}
    gap = (
        f" The logits of {len(missing)} attention sub-layers were not seen, the first in {missing[0]}."
        if missing
        else ""
    )
    if not rows:
        says = (
            "Not seen: no softmax over pairs of tokens ran in an attention sub-layer." if missing else "No attention."
        )
        return Finding("attention logits", False, says, threshold, numbers)
    large = sorted((row for row in rows if row["max_abs"] > LARGE_LOGIT), key=lambda row: -row["max_abs"])
    worst = max(rows, key=lambda row: row["max_abs"])
    says = (
        f"The largest of {len(rows)} heads' logits is {number(worst['max_abs'])} (block {worst['layer']}, head "
        f"{worst['head']}), {number(worst['doublings'])} doublings below fp16's largest number."
    )
    if large:
        named = listed(f"block {row['layer']} head {row['head']} ({number(row['max_abs'])})" for row in large[:_NAMED])
        rest = f" and {len(large) - _NAMED} more" if len(large) > _NAMED else ""
        have = "head has" if len(large) == 1 else "heads have"
        says += f" {len(large)} {have} logits beyond ±{LARGE_LOGIT:g}: {named}{rest}."
    return Finding("attention logits", bool(large), says + gap, threshold, numbers)


def head_room(look: Look) -> Finding:
    """Return the finding on fp16's range."""
    peak = look.peak
    left = doublings(peak.max_abs)
    threshold = f"fewer than {FEW_DOUBLINGS:g} doublings are left, or an entry is not finite"
    numbers = {
        "max_abs": peak.max_abs,
        "module": peak.module,
        "side": peak.side,
        "doublings": left,
        "nonfinite": peak.nonfinite,
        "first_nonfinite": peak.first,
    }
    what = f"what {peak.module} {peak.side} ({number(peak.max_abs)})"
    if left >= 0:
        says = f"{number(left)} doublings are left before fp16 overflows: the largest entry of all is in {what}."
    else:
        says = f"fp16 overflows: {what} exceeds its largest number, 65504, {number(2**-left)}-fold."
    if peak.nonfinite:
        says += f" {peak.nonfinite} entries are not finite, the first in what {peak.first} gives."
    return Finding("range of fp16", left < FEW_DOUBLINGS or peak.nonfinite > 0, says, threshold, numbers)


def rounding(look: Look) -> Finding:
    """Return the finding on residual sums in bfloat16."""
    threshold = f"a sum in bfloat16 loses more than {LOST:.0%} of the median token's update".replace("%", " %")
    rows = [{**_where(at), "all_tokens": pooled, "median_token": median} for at, (pooled, median) in look.lost.items()]
    known = {at: median for at, (_, median) in look.lost.items() if median == median}
    if not known:
        return Finding("rounding of bf16", False, "No residual sum was observed.", threshold, {"updates": rows})
    much = [at for at, median in known.items() if median > LOST]
    worst = max(known, key=known.__getitem__)
    stacks = {at.stack for at in known}
    says = (
        f"A residual sum in bfloat16 loses at most {_percent(known[worst])} of the median token's update "
        f"(in {place(worst, stacks)})."
    )
    if much:
        says = (
            f"{len(much)} of {len(known)} residual sums in bfloat16 lose more than {_percent(LOST)} of the median "
            f"token's update, most in {place(worst, stacks)} ({_percent(known[worst])})."
        )
    return Finding("rounding of bf16", bool(much), says, threshold, {"updates": rows})


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _where(at: Address) -> dict[str, Any]:
    return {"stack": at.stack, "layer": at.layer, "sublayer": at.sublayer}
