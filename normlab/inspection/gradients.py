"""Gradients that grow or vanish from the last block back to the first, by role."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import stats

from normlab.digits import number
from normlab.inspection.finding import OF_BLOCK, SUBLAYER_WORDS, Finding, blocks, listed
from normlab.inspection.sharing import Shared

#: A role's gradient vanishes or grows if its norm changes more than this along the fitted line.
CHANGES: Final = 10.0
_THRESHOLD: Final = (
    "along the Theil-Sen line of ln(gradient norm) of a role of parameters against the block, block 1 and the last "
    f"differ more than {CHANGES:g}-fold, or a gradient is zero or not finite"
)
_FEWEST: Final = 4


def gradients(table: pd.DataFrame, backward: bool, shared: Sequence[Shared] = ()) -> Finding:
    """Return the finding.

    Args:
        table: what was recorded.
        backward: whether a backward pass ran.
        shared: the blocks that share the parameters of others.
    """
    numbers: dict[str, Any] = {"roles": [], "shared": [one._asdict() for one in shared]}
    if not backward:
        return Finding("gradients", False, "Not looked at: no backward pass was run.", _THRESHOLD, numbers)
    rows = table[(table["quantity"] == "grad_norm") & table["layer"].notna() & table["sublayer"].isin(OF_BLOCK)]
    # The gradient of the keys' bias is zero up to rounding whatever the model does; other biases say nothing new.
    rows = rows[~rows["role"].astype(str).str.endswith("_bias") & (rows["role"] != "other")]
    found = [_of_role(str(stack), str(sub), str(role), each) for (stack, sub, role), each in _grouped(rows)]
    several = len({one["stack"] for one in found}) > 1
    found = [one | {"name": _name(one, several)} for one in found]
    vanish = [one for one in found if one["factor"] is not None and one["factor"] < 1 / CHANGES]
    grow = [one for one in found if one["factor"] is not None and one["factor"] > CHANGES]
    broken = [one for one in found if one["zero"] or one["nonfinite"]]
    says = " ".join(filter(None, [_said(vanish, "falls"), _said(grow, "grows"), *_gaps(broken)])) or _even(found)
    streams = list(_at_streams(table))
    said = " ".join([says, *_streams_said(streams), *(_of_shared(one, several) for one in shared)])
    numbers |= {"roles": found, "streams": streams}
    return Finding("gradients", bool(vanish or grow or broken), said, _THRESHOLD, numbers)


def _at_streams(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield of each stack the norm of the loss's gradient at the stream after each block."""
    rows = table[(table["quantity"] == "l2") & (table["site"] == "stream_grad") & (table["layer"] > 0)]
    rows = rows[rows["sublayer"].isin(OF_BLOCK) & np.isfinite(rows["value"]) & (rows["value"] > 0)]
    for stack, each in rows.groupby(rows["stack"].astype(str), sort=False):
        # After a block is after the last of its sub-layers.
        last = each.drop_duplicates("layer", keep="last").sort_values("layer")
        if len(last) > 1:
            yield {"stack": stack, "layers": last["layer"].astype(int).tolist(), "l2": last["value"].tolist()}


def _streams_said(streams: list[dict[str, Any]]) -> Iterator[str]:
    for one in streams:
        of = f" of the {one['stack']}" if len(streams) > 1 else ""
        layers, norms = one["layers"], one["l2"]
        most = int(np.argmax(norms))
        within = most not in (0, len(norms) - 1)
        largest = f", and is largest after block {layers[most]} ({number(norms[most])})" if within else ""
        yield (
            f"At the stream{of} the gradient's norm is {number(norms[0])} after block {layers[0]} and "
            f"{number(norms[-1])} after block {layers[-1]}{largest}: "
            f"{number(max(norms) / min(norms))}-fold between the largest and the smallest."
        )


def _of_shared(one: Shared, several: bool) -> str:
    of = f" of the {one.stack}" if several else ""
    which = f"{blocks(one.layers)}{of}"
    if one.roles:
        role = f"parameter{'' if len(one.roles) == 1 else 's'} {listed(one.roles)}"
        where = f"{blocks(one.owners)}{f' of the {one.owner_stack}' if one.owner_stack else ''}"
        return (
            f"The {role} of the {SUBLAYER_WORDS[one.sublayer]} of {which} {'is' if len(one.roles) == 1 else 'are'} "
            f"shared with {where}, where the gradients of all of them stand, as sums."
        )
    named = f"the {SUBLAYER_WORDS[one.sublayer]} of {which}" if one.sublayer else which
    verb = "shares" if one.sublayer or len(one.layers) == 1 else "share"
    return (
        f"{named[0].upper()}{named[1:]} {verb} the parameters of {blocks(one.owners)}, where the gradients of all of "
        "them stand, as sums."
    )


def _grouped(rows: pd.DataFrame) -> Any:
    return rows.groupby(["stack", "sublayer", "role"], observed=True, sort=False)


def _of_role(stack: str, sublayer: str, role: str, rows: pd.DataFrame) -> dict[str, Any]:
    """Return a role's norms and what the line through their logarithms says from the last block back to block 1."""
    rows = rows.sort_values("layer")
    layer, norm = rows["layer"].to_numpy(dtype=float), rows["value"].to_numpy(dtype=float)
    usable = np.isfinite(norm) & (norm > 0) & (rows["status"] != "nonfinite").to_numpy()
    factor = spread = None
    if usable.sum() >= _FEWEST:
        slope = stats.theilslopes(np.log(norm[usable]), layer[usable]).slope
        factor = float(np.exp(-slope * (layer[usable].max() - layer[usable].min())))
        spread = float(norm[usable].max() / norm[usable].min())
    return {
        "stack": stack,
        "sublayer": sublayer,
        "role": role,
        "layers": [int(one) for one in layer],
        "grad_norm": norm.tolist(),
        "factor": factor,
        "spread": spread,
        "zero": [int(one) for one in layer[(rows["status"] == "exact-zero").to_numpy()]],
        "nonfinite": [int(one) for one in layer[(rows["status"] == "nonfinite").to_numpy()]],
    }


def _name(one: dict[str, Any], several: bool) -> str:
    where = f"{one['stack']} {one['sublayer']}" if several else one["sublayer"]
    return f"{'all parameters' if one['role'] == 'all' else one['role']} ({where})"


def _said(found: list[dict[str, Any]], verb: str) -> str:
    if not found:
        return ""
    parts = []
    for one in sorted(found, key=lambda one: abs(np.log(one["factor"])), reverse=True):
        times = one["factor"] if verb == "grows" else 1 / one["factor"]
        parts.append(f"{one['name']} {number(times)}-fold")
    return f"Along the line fitted from the last block back to the first the gradient {verb}: {listed(parts)}."


def _gaps(found: list[dict[str, Any]]) -> Iterator[str]:
    """Say of which roles the gradient is zero or not finite; those of the same blocks together."""
    together: dict[str, list[str]] = defaultdict(list)
    for one in found:
        parts = [f"exactly zero in {blocks(one['zero'])}"] if one["zero"] else []
        parts += [f"not finite in {blocks(one['nonfinite'])}"] if one["nonfinite"] else []
        together[listed(parts)].append(one["name"])
    for what, names in together.items():
        gradients, are = ("gradient", "is") if len(names) == 1 else ("gradients", "are")
        yield f"The {gradients} of {listed(names)} {are} {what}."


def _even(found: list[dict[str, Any]]) -> str:
    known = [one for one in found if one["factor"] is not None]
    if not known:
        return f"Too few blocks to tell: no role has gradients in {_FEWEST} blocks."
    worst = max(known, key=lambda one: abs(np.log(one["factor"])))
    widest = max(known, key=lambda one: one["spread"])
    return (
        "No role of parameters has one that grows or vanishes: along the line fitted from the last block back to the "
        f"first no role's gradient changes more than {number(float(np.exp(abs(np.log(worst['factor'])))))}-fold "
        f"({worst['name']}); that of one block is at most {number(widest['spread'])} times that of another "
        f"({widest['name']})."
    )
