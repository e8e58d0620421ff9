"""The site plan of a model whose blocks are known: at which module each site can be read."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from normlab.recording.discovery.branch import Branch
from normlab.recording.discovery.layers import Place, Row
from normlab.recording.discovery.showing import Found, Ports
from normlab.recording.discovery.steps import Tracks
from normlab.recording.plan import Absent, Address, Observed, Residual
from normlab.vocabulary import SITES

Part: TypeAlias = Observed | Residual | Absent

NOWHERE: Final = "no module takes or gives this tensor"
NO_PAIR: Final = "no modules take or give both skip and update before their sum"
NOT_WHOLE: Final = "the module sees a view of this tensor, and others use the tensor itself"


def stack_sites(tracks: Tracks, row: Row, name: str, ports: Ports) -> Iterator[Part]:
    """Yield the sites of a stack."""
    yield from _site(Address(name, 0, "embed", "stream"), ports.port(row.start))
    for place in row.places:
        if len(place.branches) > 1:
            yield from _parallel(tracks, place, name, ports)
        else:
            yield from _sequential(tracks, place, name, ports)
    for place, total in zip(row.places, row.second, strict=False):
        yield from _site(place.address(name, place.branches[-1])._replace(site="stream2"), ports.port(total))
    if row.final is not None:
        yield from _site(Address(name, row.depth, "final", "final"), ports.port(row.final.given))


def _sequential(tracks: Tracks, place: Place, name: str, ports: Ports) -> Iterator[Part]:
    (branch,) = place.branches
    at = place.address(name, branch)
    yield from _branch_sites(at, branch, ports)
    skip, update = ports.port(place.sum.skip), ports.port(place.sum.updates[0])
    yield from _sum_sites(at, place, skip, update, ports)


def _parallel(tracks: Tracks, place: Place, name: str, ports: Ports) -> Iterator[Part]:
    """Yield the sites of branches that read the same stream: the last has their common sum."""
    skip = ports.port(place.sum.skip)
    updates = [ports.port(branch.update) if branch.apart else None for branch in place.branches]
    for branch, update in zip(place.branches[:-1], updates[:-1], strict=True):
        at = place.address(name, branch)
        yield from _branch_sites(at, branch, ports)
        yield from _pair(at, skip, update, None, place, ports)
        yield Absent(at._replace(site="stream"), "parallel")
    last = place.branches[-1]
    at = place.address(name, last)
    yield from _branch_sites(at, last, ports)
    together = ports.port(place.sum.updates[0]) if len(place.sum.updates) == 1 else None
    together = together or _together(updates)
    yield from _sum_sites(at, place, skip, together, ports)


def _together(found: list[Found | None]) -> Found | None:
    """Return the port of a sum of tensors that show at different modules."""
    shown = sorted((one for one in found if one is not None), key=lambda one: one.order)
    if len(shown) < len(found):
        return None
    *others, last = shown
    port = replace(last.port, plus=tuple(one.port for one in others))
    return Found(port, last.order, last.whole)


def _branch_sites(at: Address, branch: Branch, ports: Ports) -> Iterator[Part]:
    yield from _site(at._replace(site="input"), ports.port(branch.input))
    yield from _site(at._replace(site="branch"), ports.port(branch.given))
    if branch.memory is not None:
        yield from _site(at._replace(site="memory"), ports.port(branch.memory))
    if branch.scoring is not None:
        for site in ("query", "key", "value", "logits"):
            yield Absent(at._replace(site=site), "discovery reads no tensors inside attention: give a plan of your own")


def _sum_sites(at: Address, place: Place, skip: Found | None, update: Found | None, ports: Ports) -> Iterator[Part]:
    yield from _site(at._replace(site="stream"), ports.port(place.stream))
    if place.outer is not None:
        yield from _site(at._replace(site="sum"), ports.port(place.sum.total))
    yield from _pair(at, skip, update, place.sum.total, place, ports)


def _pair(
    at: Address, skip: Found | None, update: Found | None, total: int | None, place: Place, ports: Ports
) -> Iterator[Part]:
    yield from _site(at._replace(site="skip"), skip)
    yield from _site(at._replace(site="update"), update)
    at = at._replace(site="update")
    if skip is None or update is None:
        yield Absent(at, NO_PAIR, kind="pair")
        return
    stored = None if total is None else ports.port(total, after=[skip, update])
    if stored is None and skip.order > update.order:
        # Without a stored sum the pair is compared when the update shows, so that the skip must show before.
        earlier = ports.port(place.sum.skip, before=update)
        if earlier is None:
            yield Absent(at, NO_PAIR, kind="pair")
            return
        skip, stored = earlier, None if total is None else ports.port(total, after=[earlier, update])
    yield Residual(at, skip.port, update.port, None if stored is None else stored.port)


def _site(address: Address, found: Found | None) -> Iterator[Part]:
    gradient = f"{address.site}_grad"
    if found is None:
        yield Absent(address, NOWHERE)
    else:
        yield Observed(address, found.port, gradient=found.whole)
    if gradient in SITES and (found is None or not found.whole):
        yield Absent(address._replace(site=gradient), NOWHERE if found is None else NOT_WHOLE)
