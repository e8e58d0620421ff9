"""The residual sums of a data flow, and the chains that they form: one chain a stack."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from normlab.recording.discovery.graph import Flow
from normlab.recording.discovery.mixing import SPECTRAL
from normlab.recording.discovery.steps import Tracks, Way


@dataclass(frozen=True)
class Sum:
    """A residual sum.

    Attributes:
        total: the sum.
        skip: the term that goes around the sub-layers.
        updates: the other terms; several where sub-layers are parallel.
        base: the stream that the sub-layers read.
    """

    total: int
    skip: int
    updates: tuple[int, ...]
    base: int


@dataclass
class Chain:
    """Residual sums in a row.

    Attributes:
        start: what the first block receives.
        sums: the sums, in order.
        streams: every value that is the stream somewhere: the start, sums, and sums that a norm was put on.
        second: sums of the same updates with another stream.
        joined: values that are the stream and something that no sub-layer of it computed: an earlier stream, as
            over the blocks of a U-Net, or what does not depend on it, as an embedding of the block's number.
        chosen: after sums of which each token is told to take the result or not, the stream that is left.
        beside: whether its updates are computed from sums of another chain, and those of the other from its own.
    """

    start: int
    sums: list[Sum] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)
    chosen: dict[int, int] = field(default_factory=dict)
    beside: bool = False

    def carries(self, way: Way) -> bool:
        """Whether a tensor is one of the streams, rescaled."""
        return any(value in self.streams or value in self.second for value in way.values)


def chains(tracks: Tracks) -> list[Chain]:
    """Return the chains of residual sums, longest first; a sum inside a branch of a longer chain is not one."""
    found: list[Chain] = []
    absorbed: set[int] = set()
    needed = tracks.flow.needed
    candidates = [value.index for value in tracks.flow.values if adds(tracks.flow, value.index)]
    candidates = [index for index in candidates if needed >> index & 1]
    # A module may see a sum that is a step of another one, such as f - x of x + u(f - x), without its being a stream.
    undone = {index for index in tracks.flow.undone if not tracks.flow.given >> index & 1}
    candidates = [index for index in candidates if index not in undone]
    for index in candidates:
        for inner in _absorbed(tracks.flow, index):
            absorbed.add(inner)
    for index in sorted({*candidates, *(value.index for value in tracks.flow.values if value.op == "where")}):
        if index in absorbed or _chosen(tracks, found, index):
            continue
        if _extend(tracks, found, index, _one_update(tracks.flow, index), skips=1):
            continue
        if not _extend(tracks, found, index, terms_of(tracks.flow, index)) and adds(tracks.flow, index):
            # A stream may be added to what has not been a sum of its own yet.
            for step in sorted({*_absorbed(tracks.flow, index)}):
                _extend(tracks, found, step, [tracks.flow.same(one) for one in tracks.flow.values[step].inputs])
    found.sort(key=lambda chain: -len(chain.sums))
    kept: list[Chain] = []
    for chain in found:
        around = [other for other in kept if _nested(tracks.flow, chain, other)]
        for other in around:
            other.beside |= _inside(tracks.flow, chain, other) and _inside(tracks.flow, other, chain)
        kept += [] if around else [chain]
    return sorted(kept, key=lambda chain: chain.start)


def adds(flow: Flow, index: int) -> bool:
    """Whether a value is the sum of two tensors that both carry features."""
    value = flow.values[index]
    if value.op != "add" or len(value.inputs) != 2 or len(value.shape) < 2:
        return False
    assert value.function is not None
    plain = value.function[2].get("alpha", 1) == 1
    return plain and all(flow.live[one] and flow.values[one].shape == value.shape for one in value.inputs)


def _absorbed(flow: Flow, index: int) -> Iterator[int]:
    """Yield the sums that are only a step of this one: used by nothing else, and seen at no module."""
    for one in flow.values[index].inputs:
        root = flow.same(one)
        if adds(flow, root) and root not in flow.seen_at and _only_used_by(flow, root, index):
            yield root
            yield from _absorbed(flow, root)


def _only_used_by(flow: Flow, root: int, index: int) -> bool:
    return all(use == index or (flow.same(use) == root and _only_used_by(flow, use, index)) for use in flow.uses[root])


def terms_of(flow: Flow, index: int) -> list[int]:
    """Return the terms of a sum, those of sums that are only a step of it included."""
    steps = set(_absorbed(flow, index))
    found: list[int] = []
    for one in flow.values[index].inputs:
        root = flow.same(one)
        found += terms_of(flow, root) if root in steps else [root]
    return found


def _one_update(flow: Flow, index: int) -> list[int]:
    """Return the two terms of a sum, the one that is a sum of its own last, as one of several experts is."""
    steps = set(_absorbed(flow, index))
    terms = [flow.same(one) for one in flow.values[index].inputs] if steps else []
    return sorted(terms, key=steps.__contains__) if sum(term in steps for term in terms) == 1 else []


def _parts(flow: Flow, index: int, term: int) -> list[int]:
    """Return the terms of a term of a sum, or the term itself where it is no sum that is only a step of this one."""
    return terms_of(flow, term) if term in _absorbed(flow, index) else [term]


def _chosen(tracks: Tracks, found: list[Chain], index: int) -> bool:
    """Take note of a stream of which a mask took each token from before or after a sum; say whether it is a choice."""
    value = tracks.flow.values[index]
    if value.op != "where":
        return False
    before, *after = sorted(tracks.flow.same(term) for term in value.inputs[1:])
    for chain in found if after and tracks.flow.depends(after[0], before) else ():
        if {before, after[0]} <= {*chain.streams}:
            chain.streams.append(index)
            chain.chosen[max(one.total for one in chain.sums)] = index
    return True


def _extend(tracks: Tracks, found: list[Chain], index: int, terms: list[int], skips: int | None = None) -> bool:
    """Put a sum into the chain whose stream it updates, or start one; say whether it is a residual sum.

    Args:
        tracks: the data flow.
        found: the chains.
        index: the sum.
        terms: its terms.
        skips: how many of them, from the first one on, may be the skip; all unless given.
    """
    for skip in terms[:skips] if len(set(terms)) == len(terms) else ():
        others = tuple(term for term in terms if term != skip)
        parts = [part for other in others for part in _parts(tracks.flow, index, other)]
        if not others or any(chain.carries(tracks.back(part)) for chain in found for part in parts):
            continue
        for base in _bases(tracks, found, skip):
            if all(leads(tracks.flow, base, part) and _anew(tracks, skip, part) for part in parts):
                _book(tracks, found, Sum(index, skip, others, base))
                return True
    return False


def _anew(tracks: Tracks, skip: int, part: int) -> bool:
    """Whether a term is not a mere change of what the skip was: a stream shifted by a token is no update to it."""
    before = (value for value in tracks.back(skip).values if tracks.flow.depends(part, value))
    return all(leads(tracks.flow, value, part) for value in before)


def _bases(tracks: Tracks, found: list[Chain], skip: int) -> list[int]:
    """Return what sub-layers may read whose updates are added to ``skip``, the likeliest first."""
    way = tracks.back(skip)
    bases = list(reversed(way.values))
    if adds(tracks.flow, way.start):
        bases += sorted(terms_of(tracks.flow, way.start), reverse=True)
    for one in gated(tracks.flow, way.start):
        bases += [value for value in reversed(tracks.back(one).values) if value not in bases]
    for chain in found:
        if any(base in chain.streams for base in bases):
            bases += [stream for stream in reversed(chain.streams) if stream not in bases]
    return bases


def gated(flow: Flow, index: int) -> tuple[int, ...]:
    """Return the factors of a product of two tensors that both carry features, as of a skip and its gate."""
    value = flow.values[index]
    both = value.op == "mul" and len(value.inputs) == 2 and all(flow.live[one] for one in value.inputs)
    # What has no axis for positions may be the state of a recurrent network at one of them.
    return (
        tuple(one for one in value.inputs if flow.values[one].shape == value.shape)
        if both and len(value.shape) > 2
        else ()
    )


def leads(flow: Flow, base: int, update: int) -> bool:
    """Whether a value is computed from the stream by way of a product with weights, or of a Fourier transform."""
    between = flow.between(base, update)
    return base != update and any(flow.weighs[value.index] or value.op in SPECTRAL for value in between)


def _book(tracks: Tracks, found: list[Chain], new: Sum) -> None:
    way = tracks.back(new.skip)
    reached = {*tracks.back(new.base).values, *way.values}
    chain = next((chain for chain in found if reached & set(chain.streams + chain.second)), None)
    chain = chain or _continued(tracks, found, way.start)
    if chain is not None and _updates(tracks, new) & {one for each in chain.sums for one in _updates(tracks, each)}:
        # Sums in a row that nothing else reads are one for each update.
        chain.second += [*sorted({*_absorbed(tracks.flow, new.total)}), new.total][-len(new.updates) :]
        return
    if chain is None:
        chain = Chain(new.base, streams=[new.base])
        found.append(chain)
    for value in (*way.values, new.base):
        if value not in chain.streams and any(tracks.flow.depends(value, one) for one in chain.streams):
            chain.streams.append(value)
    chain.sums.append(new)
    chain.streams.append(new.total)


def _continued(tracks: Tracks, found: list[Chain], index: int) -> Chain | None:
    """Return the chain that goes on with a value that is its stream and something else."""
    if tracks.flow.values[index].op != "add":
        return None
    for chain in reversed(found):
        terms = set(terms_in(tracks, chain, index))
        if "stream" in terms and "computed" not in terms:
            chain.streams.append(index)
            chain.joined.append(index)
            return chain
    return None


def terms_in(tracks: Tracks, chain: Chain, index: int) -> Iterator[str]:
    """Yield of each term of a sum whether it is a stream of a chain, computed from one, or something else."""
    way = tracks.back(index)
    value = tracks.flow.values[way.start]
    if chain.carries(way):
        yield "stream"
    elif value.op == "add" and len(value.inputs) == 2:
        for one in value.inputs:
            yield from terms_in(tracks, chain, one)
    else:
        yield "computed" if tracks.flow.depends(way.start, chain.start) else "else"


def _updates(tracks: Tracks, one: Sum) -> set[int]:
    return {tracks.back(update).start for update in one.updates}


def _nested(flow: Flow, chain: Chain, other: Chain) -> bool:
    """Whether a chain runs inside a branch of another one, or around it."""
    around = any(
        flow.depends(one.total, two.total) and flow.depends(two.total, one.base)
        for one in chain.sums
        for two in other.sums
    )
    return around or _inside(flow, chain, other)


def _inside(flow: Flow, chain: Chain, other: Chain) -> bool:
    return any(
        flow.depends(one.total, two.base) and any(flow.depends(update, one.total) for update in two.updates)
        for one in chain.sums
        for two in other.sums
    )
