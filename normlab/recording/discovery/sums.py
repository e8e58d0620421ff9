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
    """

    start: int
    sums: list[Sum] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)

    def carries(self, way: Way) -> bool:
        """Whether a tensor is one of the streams, rescaled."""
        return any(value in self.streams or value in self.second for value in way.values)


def chains(tracks: Tracks) -> list[Chain]:
    """Return the chains of residual sums, longest first; a sum inside a branch of a longer chain is not one."""
    found: list[Chain] = []
    absorbed: set[int] = set()
    candidates = [value.index for value in tracks.flow.values if adds(tracks.flow, value.index)]
    for index in candidates:
        for inner in _absorbed(tracks.flow, index):
            absorbed.add(inner)
    for index in candidates:
        if index not in absorbed:
            _extend(tracks, found, index)
    found.sort(key=lambda chain: -len(chain.sums))
    kept: list[Chain] = []
    for chain in found:
        if not any(_nested(tracks.flow, chain, other) for other in kept):
            kept.append(chain)
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


def _extend(tracks: Tracks, found: list[Chain], index: int) -> None:
    """Put a sum into the chain whose stream it updates, or start one, if it is a residual sum."""
    terms = terms_of(tracks.flow, index)
    for skip in terms:
        others = tuple(term for term in terms if term != skip)
        if not others or any(chain.carries(tracks.back(term)) for chain in found for term in others):
            continue
        for base in _bases(tracks, found, skip):
            if all(leads(tracks.flow, base, other) for other in others):
                _book(tracks, found, Sum(index, skip, others, base))
                return


def _bases(tracks: Tracks, found: list[Chain], skip: int) -> list[int]:
    """Return what sub-layers may read whose updates are added to ``skip``, the likeliest first."""
    way = tracks.back(skip)
    bases = list(reversed(way.values))
    if adds(tracks.flow, way.start):
        bases += sorted(terms_of(tracks.flow, way.start), reverse=True)
    for chain in found:
        if any(base in chain.streams for base in bases):
            bases += [stream for stream in reversed(chain.streams) if stream not in bases]
    return bases


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
        chain.second.append(new.total)
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
    value = tracks.flow.values[index]
    if value.op != "add" or len(value.inputs) != 2:
        return None
    terms = [one for one in value.inputs if tracks.flow.live[one]]
    for chain in found:
        if terms and all(chain.carries(tracks.back(term)) for term in terms):
            chain.streams.append(index)
            chain.joined.append(index)
            return chain
    return None


def _updates(tracks: Tracks, one: Sum) -> set[int]:
    return {tracks.back(update).start for update in one.updates}


def _nested(flow: Flow, chain: Chain, other: Chain) -> bool:
    """Whether a chain runs inside a branch of another one, or around it."""
    inside = any(
        flow.depends(one.total, two.base) and any(flow.depends(update, one.total) for update in two.updates)
        for one in chain.sums
        for two in other.sums
    )
    around = any(
        flow.depends(one.total, two.total) and flow.depends(two.total, one.base)
        for one in chain.sums
        for two in other.sums
    )
    return inside or around
