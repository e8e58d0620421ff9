"""Blocks that run with the parameters of others."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from normlab.inspection.finding import OF_BLOCK
from normlab.recording import SitePlan
from normlab.recording.discovery.architecture import Borrowed


class Shared(NamedTuple):
    """Blocks of one stack without parameters of their own: the table has those that they run with at other blocks.

    Attributes:
        stack: the stack.
        sublayer: the sub-layer that this is true of; all if empty.
        layers: the blocks.
        owners: the blocks at which the parameters stand.
        roles: the roles that this is true of; all if empty.
        owner_stack: the stack of the owners, where it is another one.
    """

    stack: str
    sublayer: str
    layers: tuple[int, ...]
    owners: tuple[int, ...]
    roles: tuple[str, ...] = ()
    owner_stack: str = ""


def shared_by(plan: SitePlan, borrowed: Iterable[Borrowed] = ()) -> tuple[Shared, ...]:
    """Return the blocks that share the parameters of others; every parameter stands once in a plan.

    Args:
        plan: the plan.
        borrowed: what single roles are known to share.
    """
    whole = _whole(plan)
    covered = {
        (one.stack, sublayer, layer)
        for one in whole
        for sublayer in ((one.sublayer,) if one.sublayer else OF_BLOCK)
        for layer in one.layers
    }
    return (*whole, *_of_roles(one for one in borrowed if (one.stack, one.sublayer, one.layer) not in covered))


def _of_roles(borrowed: Iterable[Borrowed]) -> Iterator[Shared]:
    """Put together the roles that the same blocks share, and the blocks that share the same role."""
    places: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    for one in borrowed:
        named = one.role not in ("", "other") and one.sublayer in OF_BLOCK
        if named and one.layer is not None and one.owner_layer:  # an embedding stands at layer 0
            key = one.stack, one.sublayer, one.owner_stack, one.role
            places.setdefault(key, []).append((one.layer, one.owner_layer))
    roles: dict[Shared, list[str]] = {}
    for (stack, sublayer, owner, role), pairs in places.items():
        layers, owners = (tuple(sorted(set(each))) for each in zip(*pairs, strict=True))
        shared = Shared(stack, sublayer, layers, owners, (), "" if owner == stack else owner)
        roles.setdefault(shared, []).append(role)
    return (shared._replace(roles=tuple(each)) for shared, each in roles.items())


def _whole(plan: SitePlan) -> tuple[Shared, ...]:
    """Return the blocks that have no parameters of their own."""
    owned = {(one.address.stack, one.address.sublayer, one.address.layer) for one in plan.parameters}
    places = dict.fromkeys(
        (at.stack, at.sublayer, at.layer)
        for at in (one.address for one in plan.observed)
        if at.sublayer in OF_BLOCK and at.layer is not None
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
