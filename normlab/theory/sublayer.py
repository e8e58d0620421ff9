"""One sub-layer on the way forward, or several alike at once (equation F1 of ``docs/theory.md``)."""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from normlab.placements import Wiring
from normlab.spec import ModelSpec
from normlab.theory.copies import replace
from normlab.theory.elementwise import Elementwise, identity, scaled
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.matrices import Gains, gains
from normlab.theory.mixing import AttentionMap, attention_map
from normlab.theory.mlp import MlpMap, mlp_map
from normlab.theory.norms import Norms, Reads
from normlab.theory.reasons import NoTheory
from normlab.theory.state import State, joined, skipped
from normlab.where import StackName, Where

#: A mean square beyond which numbers of a float32 model overflow.
_OVERFLOW = 1e30
_SCALES = ("skip_scale", "branch_scale", "input_scale")


def _plain(number: float) -> float:
    return number if number in (0, 1) else math.inf


@dataclass(frozen=True, eq=False)
class Place:
    """Where a sub-layer stands, its switches and its matrices."""

    where: Where
    wiring: Wiring
    gains: Gains

    @property
    def kind(self) -> Hashable:
        """What sub-layers have in common that are carried at once: all but numbers other than 0 and 1."""
        switches = (value if name not in _SCALES else _plain(value) for name, value in vars(self.wiring).items())
        return self.where.sublayer, *switches, *map(_plain, self.gains.squared.values())


class Passed(NamedTuple):
    """What a sub-layer makes of the streams before it; the names are those of ``Step``."""

    place: Place
    waits: bool
    inner: Elementwise
    inputs: Array
    mixer: AttentionMap | MlpMap
    branch: Array
    output: Elementwise
    dropped: Array | float
    skip: Array | None
    update: Array
    total: Array
    outer: Elementwise
    after: State

    @property
    def normed(self) -> bool:
        """Whether a norm stands on its sum."""
        return self.place.wiring.norms_stream and not self.waits


def places(spec: ModelSpec, stack: StackName) -> Iterator[Place]:
    """Yield the sub-layers of a stack, in order."""
    shapes = {sublayer: spec.matrices(sublayer) for sublayer in spec.sublayers(stack)}
    # Equal gains are one object: a deep model keeps few.
    known: dict[Hashable, Gains] = {}
    for layer in range(1, spec.stacks[stack] + 1):
        for sublayer, matrices in shapes.items():
            where = spec.where(stack, layer, sublayer)
            found = gains(spec, where, matrices)
            found = known.setdefault((sublayer, *found.squared.values()), found)
            yield Place(where, spec.wiring(where), found)


def passed(norms: Norms, place: Place, state: State, geometry: Geometry, memory: Array | None) -> Passed:
    """Carry the streams through a sub-layer of the unified block.

    Args:
        norms: of the model.
        place: the sub-layer, or one of several alike.
        state: what it gets; of several alike, :func:`~normlab.theory.stacked.stacked`.
        geometry: the pairs of tokens.
        memory: what cross-attention reads.

    Raises:
        NoTheory: a part of it has no closure, or the stream overflows.
    """
    spec, wiring = norms.spec, place.wiring
    if place.where.starts_block:
        state = state.entered
    source, held = (state.block_input, state.block_held) if spec.parallel else (state.x, state.held)
    if wiring.inner_norm:
        reads: Reads = "stream" if wiring.skip == "normed" else "entry"
        inner = norms.around()(source, geometry, mean=held.tilt**2 * state.level, on=reads)
    else:
        inner = identity(source)
    inputs = scaled(wiring.input_scale**2, inner.value)
    mixer = _mixer(norms, place, inputs, geometry, memory)
    branch = mixer.value
    if wiring.output_norm:
        output = norms.around(initial_gain=wiring.output_gain)(branch, geometry, on="fresh")
    else:
        output = identity(branch)
    update = scaled(wiring.branch_scale**2, output.value)
    dropped: Array | float = 1.0
    if spec.dropout:
        dropped = 1 + geometry.own * (spec.dropout / (1 - spec.dropout))
        update = update * dropped
    waits = spec.parallel and place.where.sublayer == "attn"
    skip, held = skipped(wiring, inner, source, state)
    if state.waiting is not None:
        update = update + state.waiting
    total = update if waits or skip is None else skip + update
    # No pair of tokens has more than the larger of both has with itself.
    if not total.max() < _OVERFLOW:
        raise NoTheory("the stream overflows")
    if wiring.norms_stream and not waits:
        outer = norms.around()(total, geometry, mean=held.tilt**2 * state.level, on="stream")
    else:
        outer = identity(total)
    after = replace(state, waiting=update) if waits else joined(state, wiring, inner, outer, update, held)
    return Passed(place, waits, inner, inputs, mixer, branch, output, dropped, skip, update, total, outer, after)


def _mixer(
    norms: Norms, place: Place, inputs: Array, geometry: Geometry, memory: Array | None
) -> AttentionMap | MlpMap:
    if place.where.sublayer == "mlp":
        return mlp_map(norms, place.wiring, place.gains, inputs, geometry)
    read = memory if place.where.sublayer == "cross" else None
    return attention_map(norms, place.where, place.wiring, place.gains, inputs, geometry, memory=read)
