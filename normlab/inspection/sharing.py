"""Blocks that run with the parameters of others."""

from typing import Final, NamedTuple

from normlab.recording import SitePlan

_SUBLAYERS: Final = ("attn", "cross", "mlp")


class Shared(NamedTuple):
    """Blocks of one stack without parameters of their own: the table has those that they run with at other blocks.

    Attributes:
        stack: the stack.
        sublayer: the sub-layer that this is true of; all if empty.
        layers: the blocks.
        owners: the blocks at which the parameters stand.
    """

    stack: str
    sublayer: str
    layers: tuple[int, ...]
    owners: tuple[int, ...]


def shared_by(plan: SitePlan) -> tuple[Shared, ...]:
    """Return the blocks that share the parameters of others; every parameter stands once in a plan."""
    owned = {(one.address.stack, one.address.sublayer, one.address.layer) for one in plan.parameters}
    places = dict.fromkeys(
        (at.stack, at.sublayer, at.layer)
        for at in (one.address for one in plan.observed)
        if at.sublayer in _SUBLAYERS and at.layer is not None
    )
    found: dict[tuple[str, str], Shared] = {}
    for stack, sublayer, layer in places:
        if (stack, sublayer, layer) not in owned:
            owners = (at[2] for at in owned if at[:2] == (stack, sublayer) and at[2] is not None)
            before = found.get((stack, sublayer), Shared(stack, sublayer, (), tuple(sorted(owners))))
            found[stack, sublayer] = before._replace(layers=(*before.layers, layer))
    known = [one for one in found.values() if one.owners]
    kinds = {(stack, sublayer) for stack, sublayer, _ in places}
    whole = [len({(one.layers, one.owners) for one in known if one.stack == stack}) == 1 for stack, _ in kinds]
    if known and all(whole) and len(known) == len(kinds):
        return tuple(dict.fromkeys(one._replace(sublayer="") for one in known))
    return tuple(known)
