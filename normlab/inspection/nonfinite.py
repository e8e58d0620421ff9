"""Numbers that are not finite: where they begin, forward and backward, and every block that has them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from normlab.inspection.finding import OF_BLOCK, Finding, by_stack, listed, place
from normlab.inspection.looking import Look
from normlab.recording import Address

#: The sites of a sub-layer that have gradients, in the order in which a backward pass reaches them.
_BACKWARD: Final = ("final_grad", "stream_grad", "stream2_grad", "sum_grad", "update_grad", "branch_grad", "input_grad")
_WORDS: Final[Mapping[str, str]] = {
    "final_grad": "the result of the final norm",
    "stream_grad": "the stream after",
    "stream2_grad": "the second stream after",
    "sum_grad": "the residual sum of",
    "update_grad": "the update of",
    "branch_grad": "what the last matrix gives in",
    "input_grad": "what the first matrix sees in",
}
_NAMED: Final = 3


def nonfinite(look: Look, table: pd.DataFrame, loss: float, backward: bool) -> Finding:
    """Return the finding.

    Args:
        look: what was seen.
        table: what was recorded, with the rows of the inspection.
        loss: the value of the loss.
        backward: whether a backward pass ran.
    """
    bad = table[(table["status"] == "nonfinite") | ((table["quantity"] == "nonfinite") & (table["value"] > 0))]
    site, role = bad["site"].astype(str), bad["role"].astype(str)
    of_gradients = site.str.endswith("_grad") | ((role != "") & (bad["quantity"] != "param_rms"))
    of_activations = (site != "") & ~of_gradients
    order = list(look.streams)
    stacks = {at.stack for at in order}
    forward, behind = _blocks(bad[of_activations]), _blocks(bad[of_gradients])
    first = _first_gradient(bad, order)
    parts = [
        _weights(look.broken),
        _forward(look, forward, stacks),
        "" if loss - loss == 0 else "The loss is not finite.",
        _backward(first, behind, stacks) if backward else "",
    ]
    says = " ".join(part for part in parts if part)
    numbers = {
        "weights": list(look.broken),
        "first_module": look.peak.first,
        "side": look.peak.first_side,
        "entries": look.peak.nonfinite,
        "blocks": [{"stack": stack, "layer": layer} for stack, layer in forward],
        "first_gradient": None if first is None else _plain(first),
        "gradient_blocks": [{"stack": stack, "layer": layer} for stack, layer in behind],
    }
    none = "every number is finite, forward and backward"
    if not backward:
        none = "every number of the forward pass is finite; no backward pass was run"
    return Finding(
        "numbers that are not finite",
        bool(says),
        says or f"None: {none}.",
        "a weight, activation, logit, gradient or the loss is infinite or not a number",
        numbers,
    )


def _blocks(rows: pd.DataFrame) -> list[tuple[str, int]]:
    rows = rows[rows["layer"].notna() & (rows["layer"] > 0) & rows["sublayer"].isin(OF_BLOCK)]
    places = zip(rows["stack"].astype(str), rows["layer"].astype(int), strict=True)
    return sorted(set(places), key=lambda at: (at[0] != "encoder", at))


def _weights(broken: Sequence[str]) -> str:
    if not broken:
        return ""
    rest = [f"{len(broken) - _NAMED} more"] if len(broken) > _NAMED else []
    which = "The parameter" if len(broken) == 1 else "The parameters"
    have = "has" if len(broken) == 1 else "have"
    return f"{which} {listed([*broken[:_NAMED], *rest])} {have} entries that are not finite."


def _forward(look: Look, forward: list[tuple[str, int]], stacks: set[str]) -> str:
    peak = look.peak
    broken = [at for at, one in look.streams.items() if one.nonfinite]
    parts = []
    if peak.first:
        parts.append(f"Forward, they begin in what {peak.first} {peak.first_side}.")
    if broken:
        tokens = look.streams[broken[0]]
        parts.append(
            f"The stream has them first after {place(broken[0], stacks)}, in {tokens.nonfinite} of "
            f"{tokens.nonfinite + tokens.finite} tokens."
        )
    if forward:
        parts.append(f"Activations are not finite in {by_stack(forward, stacks)}.")
    return " ".join(parts)


def _backward(first: tuple[Address, str] | None, behind: list[tuple[str, int]], stacks: set[str]) -> str:
    parts = []
    if first is not None:
        at, site = first
        where = "" if site == "final_grad" else f" {place(at, stacks)}"
        parts.append(f"Backward, they begin in the gradient at {_WORDS[site]}{where}.")
    if behind:
        parts.append(f"Gradients are not finite in {by_stack(behind, stacks)}.")
    return " ".join(parts)


def _first_gradient(bad: pd.DataFrame, order: list[Address]) -> tuple[Address, str] | None:
    """Return where a backward pass first has a gradient that is not finite, and at which site."""
    ranks = {(at.stack, at.layer, at.sublayer, at.name): rank for rank, at in enumerate(order)}
    last = {at.stack: rank for rank, at in enumerate(order)}
    found: list[tuple[int, int, Address, str]] = []
    for row in bad[bad["site"].isin(_BACKWARD)].to_dict("records"):
        at, site = Address(row["stack"], int(row["layer"]), row["sublayer"], name=row["name"]), str(row["site"])
        final = last.get(at.stack, -1) if at.sublayer == "final" else -1
        rank = ranks.get((at.stack, at.layer, at.sublayer, at.name), final)
        found.append((-rank, _BACKWARD.index(site), at, site))
    if not found:
        return None
    _, _, at, site = min(found, key=lambda one: one[:2])
    return at, site


def _plain(first: tuple[Address, str]) -> dict[str, Any]:
    at, site = first
    return {"stack": at.stack, "layer": at.layer, "sublayer": at.sublayer, "name": at.name, "site": site}
