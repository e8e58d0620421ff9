"""Which block each residual sum belongs to, and where norms on the stream itself stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from normlab.recording.discovery.branch import Branch, branch_of, until
from normlab.recording.discovery.steps import Norm, Tracks, Way
from normlab.recording.discovery.sums import Chain, Sum, adds, leads, terms_in, terms_of
from normlab.recording.plan import Address


@dataclass(frozen=True)
class Place:
    """A residual sum with its branches and its place in the stack.

    Attributes:
        sum: the sum.
        branches: its branches; two where attention and MLP are parallel.
        layer: the block's number, from 1.
        block: the block's path, empty where the sums stand in no module of their own.
        skip: the way from the stream to the skip.
        outer: the norm on the sum, where there is one.
        stream: the stream after it.
        again: for each branch what tells it from an earlier one of its kind in the same block; empty for the first.
    """

    sum: Sum
    branches: tuple[Branch, ...]
    layer: int
    block: str
    skip: Way
    outer: Norm | None
    stream: int
    again: tuple[str, ...] = ()

    def address(self, stack: str, branch: Branch) -> Address:
        """Return the address of a branch in the stack of this name."""
        name = dict(zip(map(id, self.branches), self.again, strict=True)).get(id(branch), "") if self.again else ""
        return Address(stack, self.layer, branch.kind, name=name)


@dataclass(frozen=True)
class Row:
    """A chain with its blocks.

    Attributes:
        start: what the first block receives.
        places: its sums, in order.
        final: the norm after the last block, where there is one.
        second: where the updates are also added to a second stream, its sums.
        joined: the blocks before which something else is added to the stream.
        chosen: the blocks after which each token is told to take the result or to keep the stream.
        entered: the blocks within which something else is added.
        beside: whether its updates are computed from another stream, which is computed from this one.
    """

    start: int
    places: tuple[Place, ...]
    final: Norm | None
    second: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()
    entered: tuple[int, ...] = ()
    beside: bool = False

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return self.places[-1].layer


def row_of(tracks: Tracks, chain: Chain) -> Row:
    """Describe a chain."""
    flow = tracks.flow
    modules = [flow.values[one.total].module for one in chain.sums]
    outer, final, normed = _stream_norms(tracks, chain, modules)
    start = _start(tracks, chain, modules[0]) if normed else chain.start
    after = [chain.chosen.get(one.total, one.total) for one in chain.sums]
    streams = [start, *(one if norm is None else norm.given for one, norm in zip(after, outer, strict=True))]
    bases = [
        before if flow.depends(one.base, last) and one.base not in chain.joined else one.base
        for before, last, one in zip(streams, [start, *(one.total for one in chain.sums)], chain.sums, strict=False)
    ]
    branches = [_branches(tracks, base, one.updates) for base, one in zip(bases, chain.sums, strict=True)]
    blocks = _blocks(modules, [tuple(branch.kind for branch in each) for each in branches])
    places = [
        Place(one, each, block[0], block[1], skip_way(tracks, one.skip, before), norm, stream)
        for one, each, block, before, norm, stream in zip(
            chain.sums, branches, blocks, streams[:-1], outer, streams[1:], strict=True
        )
    ]
    if final is None and outer[-1] is not None and not blocks[-1][1] and len(set(map(bool, outer))) > 1:
        # The last sum alone is normed, and no block says that the norm is its own: it is the final norm.
        final, places[-1] = outer[-1], replace(places[-1], outer=None, stream=after[-1])
    chosen = tuple(dict.fromkeys(place.layer for place in places if place.sum.total in chain.chosen))
    begun = {place.layer: place for place in reversed(places)}
    others = [place for place in places if place.sum.base in chain.joined]
    joined, entered = (
        tuple(dict.fromkeys(place.layer for place in others if (place is begun[place.layer]) == first))
        for first in (True, False)
    )
    return Row(start, tuple(_told_apart(places)), final, tuple(chain.second), joined, chosen, entered, chain.beside)


def _told_apart(places: Sequence[Place]) -> Iterator[Place]:
    """Number the branches of a block that are of the same kind, as a Conformer's two half feed-forwards are."""
    counts: dict[tuple[int, str], int] = {}
    for place in places:
        again = []
        for branch in place.branches:
            number = counts[place.layer, branch.kind] = counts.get((place.layer, branch.kind), 0) + 1
            again.append(f"{branch.kind} {number}" if number > 1 else "")
        yield replace(place, again=tuple(again))


def skip_way(tracks: Tracks, skip: int, stream: int) -> Way:
    """Return the way from the stream to the skip."""
    return until(tracks.back(skip), tracks.flow.same(stream))


def _branches(tracks: Tracks, base: int, updates: tuple[int, ...]) -> tuple[Branch, ...]:
    """Describe the branches of a sum; an update that is itself the sum of attention and MLP is two of them."""
    found = [branch_of(tracks, base, update) for update in updates]
    after = found[0].after
    if len(found) == 1 and adds(tracks.flow, after.start) and not after.norms:
        terms = terms_of(tracks.flow, after.start)
        if all(leads(tracks.flow, base, term) for term in terms):
            split = [branch_of(tracks, base, term) for term in terms]
            if len({branch.kind for branch in split}) == len(split) > 1:
                found = [replace(one, after=_on(one.after, after), apart=not after.factors) for one in split]
    return tuple(sorted(found, key=_order))


def _on(way: Way, further: Way) -> Way:
    return Way(way.start, (*way.steps, *further.steps), (*way.values, *further.values[1:]))


def _order(branch: Branch) -> int:
    return ("attn", "cross", "mlp").index(branch.kind)


def _start(tracks: Tracks, chain: Chain, module: str) -> int:
    """Return what the first block receives where skips are taken from behind its norms."""
    norms = tracks.back(chain.sums[0].skip).norms
    return norms[-1].taken if norms and _nearer(norms[-1].path, module, "") else chain.start


def _blocks(modules: Sequence[str], kinds: Sequence[tuple[str, ...]]) -> list[tuple[int, str]]:
    """Return number and path of the block of each sum.

    The block is the outermost numbered module that holds each kind of sub-layer once at most; or else the
    innermost one of which all hold the same kinds in the same order. Where there is none, a block ends before
    the kind of its first sub-layer comes again.
    """
    found = list(_numbered(modules))
    once = [one for one in found if _once(one[1], kinds)]
    alike = [one for one in reversed(found) if len({tuple(kinds[place] for place in group) for group in one[1]}) == 1]
    for prefixes, groups in (*once, *(one for one in alike if len(one[1]) > 1)):
        return [(layer, prefixes[place]) for layer, group in enumerate(groups, 1) for place in group]
    return [(layer, "") for layer in _by_pattern(kinds)]


def _numbered(modules: Sequence[str]) -> Iterator[tuple[list[str], list[list[int]]]]:
    """Yield, from the outermost on, the paths of numbered modules that the sums stand in, and the sums of each."""
    parts = [module.split(".") for module in modules]
    for depth in range(1, 1 + min(len(path) for path in parts)):
        if all(path[depth - 1].isdigit() for path in parts):
            prefixes = [".".join(path[:depth]) for path in parts]
            groups = [list(group) for _, group in groupby(range(len(parts)), key=prefixes.__getitem__)]
            if len({prefixes[group[0]] for group in groups}) == len(groups):
                yield prefixes, groups


def _once(groups: list[list[int]], kinds: Sequence[tuple[str, ...]]) -> bool:
    for group in groups:
        found = [kind for place in group for kind in kinds[place]]
        if len(found) != len(set(found)):
            return False
    return True


def _by_pattern(kinds: Sequence[tuple[str, ...]]) -> list[int]:
    layers: list[int] = []
    present: set[str] = set()
    for each in kinds:
        if not layers or present & set(each):
            layers.append(layers[-1] + 1 if layers else 1)
            present = set()
        else:
            layers.append(layers[-1])
        present |= set(each)
    return layers


def _stream_norms(tracks: Tracks, chain: Chain, modules: list[str]) -> tuple[list[Norm | None], Norm | None, bool]:
    """Return the norm on each sum that makes it the stream, the norm after the last, and whether skips are normed.

    A norm whose result goes on as the stream stands on the sum, unless it belongs to the next sub-layer: then
    the skip is taken from behind that sub-layer's norm. Which it is the data flow alone cannot tell.
    """
    found: list[Norm | None] = []
    nearer: list[int] = []
    for one, following, here, there in zip(chain.sums, chain.sums[1:], modules, modules[1:], strict=False):
        total = chain.chosen.get(one.total, one.total)
        norm = next((each for each in _norms_of(tracks, following.skip) if tracks.flow.same(each.taken) == total), None)
        found.append(norm)
        nearer.append(_nearer(norm.path, there, here) if norm else 0)
    normed = any(near > 0 for near in nearer)
    found = [None if near > 0 or (normed and not near) else norm for norm, near in zip(found, nearer, strict=True)]
    last = _after(tracks, chain.chosen.get(chain.sums[-1].total, chain.sums[-1].total))
    if last is not None and not normed and _own(last, modules, found):
        return [*found, last], _after(tracks, tracks.flow.same(last.given)), normed
    return [*found, None], last or _after_others(tracks, chain), normed


def _after_others(tracks: Tracks, chain: Chain) -> Norm | None:
    """Return the norm after the last sum if something else was added first, as the streams of earlier blocks."""
    last = chain.sums[-1].total
    after = [(norm, set(terms_in(tracks, chain, norm.taken))) for norm in tracks.norms if norm.taken > last]
    found = [norm for norm, terms in after if "stream" in terms and "computed" not in terms]
    return found[-1] if len({norm.path for norm in found}) == 1 else None


def _norms_of(tracks: Tracks, skip: int) -> tuple[Norm, ...]:
    """Return the norms on the ways to a skip, which may be the sum of two streams."""
    way = tracks.back(skip)
    terms = terms_of(tracks.flow, way.start) if adds(tracks.flow, way.start) else []
    return (*way.norms, *(norm for term in terms for norm in tracks.back(term).norms))


def _nearer(path: str, one: str, two: str) -> int:
    """Return 1 if a module stands nearer to ``one`` than to ``two`` in the module tree, -1 the other way, else 0."""
    lengths = [_shared(path, other) for other in (one, two)]
    return (lengths[0] > lengths[1]) - (lengths[0] < lengths[1])


def _shared(one: str, two: str) -> int:
    count = 0
    for left, right in zip(one.split("."), two.split("."), strict=False):
        if left != right:
            break
        count += 1
    return count


def _after(tracks: Tracks, value: int) -> Norm | None:
    """Return the norm that takes a value, if there is one; of one that runs several times, the last time."""
    norms = [norm for norm in tracks.norms if value in _unscaled(tracks.back(norm.taken))]
    return norms[-1] if len({norm.path for norm in norms}) == 1 else None


def _unscaled(way: Way) -> tuple[int, ...]:
    """Return what a tensor was before its layout or its dtype changed, or a factor was put on it."""
    steps = 0
    while steps < len(way.steps) and way.steps[-1 - steps].what != "norm":
        steps += 1
    return way.values[len(way.values) - 1 - steps :]


def _own(last: Norm, modules: list[str], found: list[Norm | None]) -> bool:
    """Whether the norm after the last sum stands on that sum, as others do, and is not the final norm."""
    numbers = [place for place, part in enumerate(modules[-1].split(".")) if part.isdigit()]
    if numbers:
        return _shared(last.path, modules[-1]) > numbers[-1]
    same = any(norm is not None and _unnumbered(norm.path) == _unnumbered(last.path) for norm in found)
    return same or (bool(found) and all(norm is not None for norm in found))


def _unnumbered(path: str) -> str:
    return ".".join("" if part.isdigit() else part for part in path.split("."))
