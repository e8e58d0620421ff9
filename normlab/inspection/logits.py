"""Head-room of attention logits, and heads whose logits are not finite."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from normlab.digits import number
from normlab.errors import counted
from normlab.inspection.attention import HeadLogits
from normlab.inspection.finding import Finding, blocks, listed, of_stack, place, ranges
from normlab.inspection.looking import Look
from normlab.inspection.precision import doublings, where
from normlab.recording import Address

#: A head's logits are large beyond this: float32's exp(−104) is zero, so that its softmax can be one-hot.
LARGE_LOGIT: Final = 100.0
_NAMED: Final = 5


def logits(look: Look) -> Finding:
    """Return the finding on attention logits."""
    threshold = f"a head has a logit beyond ±{LARGE_LOGIT:g}, or one that is not finite"
    stacks = {at.stack for at in look.streams}
    rows = [_of_head(at, head, one) for at, heads in look.heads.items() for head, one in enumerate(heads)]
    numbers: dict[str, Any] = {"heads": rows, "unseen": [where(at) for at in look.unseen]}
    gap = _gap(look.unseen, stacks)
    if not rows:
        missing = "Not seen: no softmax over all pairs of tokens ran where tokens are mixed."
        return Finding("attention logits", False, missing if gap else "No attention.", threshold, numbers)
    known = [row for row in rows if row["max_abs"] == row["max_abs"]]
    large = sorted((row for row in known if row["max_abs"] > LARGE_LOGIT), key=lambda row: -row["max_abs"])
    broken = {at: [head for head, one in enumerate(heads) if one.nonfinite] for at, heads in look.heads.items()}
    says = [_largest(known, stacks) if known else "No head has a finite logit."]
    if large:
        named = [_with_room(row, stacks) for row in large[:_NAMED]]
        rest = [f"{len(large) - _NAMED} more"] if len(large) > _NAMED else []
        have = "head has" if len(large) == 1 else "heads have"
        says.append(f"{len(large)} {have} logits beyond ±{LARGE_LOGIT:g}: {listed([*named, *rest])}.")
    elif len(others := sorted(known, key=lambda row: -row["max_abs"])[1:_NAMED]) and others[0]["max_abs"]:
        says.append(f"Next: {listed(_with_room(row, stacks) for row in others if row['max_abs'])}.")
    if any(broken.values()):
        says.append(f"Logits are not finite in {listed(_broken(broken, look.heads, stacks))}.")
    says += [gap] if gap else []
    return Finding("attention logits", bool(large or any(broken.values())), " ".join(says), threshold, numbers)


def _largest(known: Sequence[Mapping[str, Any]], stacks: set[str]) -> str:
    worst = max(known, key=lambda row: float(row["max_abs"]))
    if not worst["max_abs"]:
        return f"Every logit of {counted(len(known), 'head')} is zero."
    left = float(worst["doublings"])
    room = f"{number(left)} doublings below" if left >= 0 else f"{number(2**-left)}-fold above"
    return (
        f"The largest logit of {counted(len(known), 'head')} is {number(worst['max_abs'])} ({_head(worst, stacks)}), "
        f"{room} fp16's largest number."
    )


def _with_room(row: Mapping[str, Any], stacks: set[str]) -> str:
    """Name a head with its largest logit and the doublings of it that fp16 has room for."""
    return f"{_head(row, stacks)} ({number(row['max_abs'])}, {number(row['doublings'])} doublings)"


def _of_head(at: Address, head: int, one: HeadLogits) -> dict[str, Any]:
    return {
        **where(at),
        "head": head,
        "max_abs": one.max_abs,
        "rms": one.mean_square**0.5,
        "doublings": doublings(one.max_abs),
        "nonfinite": one.nonfinite,
    }


def _head(row: Mapping[str, Any], stacks: set[str]) -> str:
    at = Address(row["stack"], row["layer"], row["sublayer"], name=row["name"])
    return f"head {row['head']} in {place(at, stacks)}"


def _broken(
    broken: Mapping[Address, list[int]], heads: Mapping[Address, list[HeadLogits]], stacks: set[str]
) -> Iterator[str]:
    """Name the heads whose logits are not finite: all of the sub-layers in which all are so, then the others."""
    whole: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, own in broken.items():
        if own and len(own) == len(heads[at]) and at.layer is not None and not at.name:
            whole[at.stack, at.sublayer].append(at.layer)
    for (stack, sublayer), layers in whole.items():
        kind = "the cross-attention of " if sublayer == "cross" else ""
        yield f"all heads of {kind}{blocks(layers)}{of_stack(stack, stacks)}"
    for at, own in broken.items():
        if own and at.layer not in whole[at.stack, at.sublayer]:
            yield f"head{'' if len(own) == 1 else 's'} {ranges(own)} in {place(at, stacks)}"


def _gap(unseen: Sequence[Address], stacks: set[str]) -> str:
    if not unseen:
        return ""
    were = "sub-layer was" if len(unseen) == 1 else "sub-layers were"
    first = f"{'' if len(unseen) == 1 else 'the first '}in {place(unseen[0], stacks)}"
    return f"The logits of {len(unseen)} attention {were} not seen, {first}."
