"""The stream's covariance from the embedding to the head (equations F1 to F5 of ``docs/theory.md``).

The walk reads the same :class:`~normlab.placements.Wiring` as a block, so it knows no placement by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from normlab.norms import NORMS
from normlab.placements import Wiring
from normlab.spec import ModelSpec
from normlab.theory.elementwise import Elementwise, identity
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.matrices import gains
from normlab.theory.mixing import AttentionMap, attention_map
from normlab.theory.mlp import MlpMap, mlp_map
from normlab.theory.norms import Norms
from normlab.theory.reasons import NoTheory
from normlab.theory.start import embedded
from normlab.where import StackName, Where

#: A mean square beyond which numbers of a float32 model overflow.
_OVERFLOW = 1e30
#: A mean square below which tokens are the same.
_SMALL = 1e-30


@dataclass(frozen=True, eq=False)
class Link:
    """The covariance of two streams a and b: for each pair E⟨a_i, b_j⟩ and E⟨b_i, a_j⟩."""

    first: Array
    second: Array

    @property
    def both(self) -> Array:
        """Their sum, which is what ⟨a + b, a + b⟩ has besides the two streams' own covariances."""
        return self.first + self.second

    def through(self, map_: Elementwise, factor: float = 1.0) -> "Link":
        """Return the covariance of factor · M(a) and b."""
        return Link(self.first * map_.first * factor, self.second * map_.second * factor)


@dataclass(frozen=True, eq=False)
class Step:
    """One sub-layer.

    Attributes:
        where: its address.
        wiring: its switches.
        inner: the norm before F.
        mixer: F.
        output: the norm after F.
        update: covariance of what is added; with parallel attention, of both updates together at the MLP.
        skip: covariance of what it is added to; ``None`` where there is no residual sum.
        total: covariance of the sum.
        outer: the norm on the sum; its value is the stream.
        waits: whether its update waits for the next sub-layer's sum (parallel attention).
        second: covariance of the second stream after the sub-layer.
        dropped: what dropout multiplies an update's covariance by: a token's own by 1/(1 − p).
    """

    where: Where
    wiring: Wiring
    inner: Elementwise
    mixer: AttentionMap | MlpMap
    output: Elementwise
    update: Array
    skip: Array | None
    total: Array
    outer: Elementwise
    waits: bool = False
    second: Array | None = None
    dropped: Array | float = 1.0

    @property
    def starts_block(self) -> bool:
        """Whether it is its block's first."""
        return (self.where.index - 1) % self.where.sublayers == 0

    @property
    def stream(self) -> Array:
        """Covariance of the stream after the sub-layer."""
        return self.outer.value


@dataclass(frozen=True, eq=False)
class Forward:
    """Everything that the backward pass and the table need of the forward pass.

    Attributes:
        spec: the model.
        geometry: the pairs of tokens.
        stack: the stack's name.
        embed: the norm after the embedding; its value is the stream at layer 0.
        steps: the sub-layers, in order.
        final: the norm after the last block, or the sum of both streams.
        out: covariance of what the head sees.
        broken: where the walk ended early, and why.
        rough: relative variance of ⟨x_i, x_j⟩ of different tokens after the last block (S6).
    """

    spec: ModelSpec
    geometry: Geometry
    stack: StackName
    embed: Elementwise
    steps: tuple[Step, ...]
    final: Elementwise
    out: Array
    broken: str = ""
    rough: float = 0.0


@dataclass(frozen=True, eq=False)
class _State:
    """What one sub-layer hands to the next."""

    x: Array
    block_input: Array
    to_block_input: Link
    second: Array | None = None
    to_second: Link | None = None
    waiting: Array | None = None
    rough: float = 0.0


def forward(spec: ModelSpec, geometry: Geometry, *, finite: bool = True) -> Forward:
    """Walk through the model.

    Args:
        spec: the model.
        geometry: the pairs of tokens.
        finite: whether directions that norms take out of a gradient count, a share of order 1/d each.

    Raises:
        NoTheory: a part of the model has no mean-field closure; what was reached before counts for nothing, except
            where the numbers themselves leave its range (:attr:`Forward.broken`).
    """
    stack, norms = _only_stack(spec), Norms(spec, finite)
    covariance = embedded(spec, stack, geometry)
    embed = norms.around()(covariance, geometry) if spec.has_embed_norm else identity(covariance)
    state = replace(_begin(spec, stack, embed.value), rough=finite / spec.width)
    steps: list[Step] = []
    broken = ""
    for where in _addresses(spec, stack):
        try:
            state, step = _step(norms, where, state, geometry)
        except NoTheory as reason:
            broken = str(reason)
            break
        steps.append(step)
    final, out = _end(norms, state, geometry)
    return Forward(spec, geometry, stack, embed, tuple(steps), final, out, broken, state.rough)


def _only_stack(spec: ModelSpec) -> StackName:
    if spec.kind == "encoder-decoder":
        raise NoTheory("cross-attention")
    if spec.position == "sinusoidal" and "shift-invariant" in NORMS[spec.norm].properties:
        raise NoTheory("sinusoidal positions have a mean over features, which this norm subtracts")
    return next(iter(spec.stacks))


def _addresses(spec: ModelSpec, stack: StackName) -> Iterator[Where]:
    for layer in range(1, spec.stacks[stack] + 1):
        for sublayer in spec.sublayers(stack):
            yield spec.where(stack, layer, sublayer)


def _begin(spec: ModelSpec, stack: StackName, x: Array) -> _State:
    kappa = spec.wiring(spec.first(stack)).second_stream
    state = _State(x, x, Link(x, x))
    return state if kappa is None else replace(state, second=kappa**2 * x, to_second=Link(kappa * x, kappa * x))


def _step(norms: Norms, where: Where, state: _State, geometry: Geometry) -> tuple[_State, Step]:
    """One sub-layer of the unified block (F1)."""
    spec = norms.spec
    wiring = spec.wiring(where)
    first = where.sublayer == spec.sublayers(where.stack)[0]
    if first:
        state = replace(state, block_input=state.x, to_block_input=Link(state.x, state.x))
    source = state.block_input if spec.parallel else state.x
    inner = identity(source)
    if wiring.inner_norm:
        inner = norms.around()(source, geometry, on="stream" if wiring.skip == "normed" else "entry")
    mixer = _mixer(norms, where, wiring, wiring.input_scale**2 * inner.value, geometry, state.rough)
    output = identity(mixer.value)
    if wiring.output_norm:
        output = norms.around(initial_gain=wiring.output_gain)(mixer.value, geometry, on="fresh")
    dropped = 1 + geometry.own * (spec.dropout / (1 - spec.dropout)) if spec.dropout else 1.0
    update = wiring.branch_scale**2 * output.value * dropped
    waits = spec.parallel and where.sublayer == "attn"
    skip = _skip(wiring, inner, source, state)
    if state.waiting is not None:
        update = update + state.waiting
    total = update if waits or skip is None else skip + update
    _check(total)
    outer = norms.around()(total, geometry, on="stream") if wiring.norms_stream and not waits else identity(total)
    after = replace(state, waiting=update) if waits else _joined(state, wiring, inner, outer, update)
    if norms.finite and not waits:
        after = replace(after, rough=_rougher(state.rough, skip, update, mixer, geometry))
    return after, Step(where, wiring, inner, mixer, output, update, skip, total, outer, waits, after.second, dropped)


def _rougher(
    rough: float, skip: Array | None, update: Array, mixer: AttentionMap | MlpMap, geometry: Geometry
) -> float:
    """Return the relative variance of ⟨x_i, x_j⟩ of different tokens after the sum (S6)."""
    width = mixer.gains.width
    kept, fresh = (0.0 if one is None else max(geometry.apart(one), 0.0) for one in (skip, update))
    total = kept + fresh
    if total < _SMALL:
        return rough
    hidden = width / mixer.gains.fan_in("down" if isinstance(mixer, MlpMap) else "o")
    # What was there is carried on by the skip and by the branch alike.
    return rough + (2 * kept * fresh + (1 + hidden) * fresh**2) / (width * total**2)


def _mixer(
    norms: Norms, where: Where, wiring: Wiring, inputs: Array, geometry: Geometry, rough: float
) -> AttentionMap | MlpMap:
    matrices = gains(norms.spec, where)
    if where.sublayer == "mlp":
        return mlp_map(norms, wiring, matrices, inputs, geometry)
    return attention_map(norms, where, wiring, matrices, inputs, geometry, rough)


def _skip(wiring: Wiring, inner: Elementwise, x: Array, state: _State) -> Array | None:
    a = wiring.skip_scale**2
    match wiring.skip:
        case "none":
            return None
        case "normed":
            return a * inner.value
        case "stream+block_input":
            return a * (x + state.block_input + state.to_block_input.both)
    return a * x


def _joined(state: _State, wiring: Wiring, inner: Elementwise, outer: Elementwise, update: Array) -> _State:
    """Return the state after the sum (F2 to F4): a fresh matrix makes the update independent of everything before."""
    a = 0.0 if wiring.skip == "none" else wiring.skip_scale
    link = state.to_block_input
    if wiring.skip == "normed":
        link = link.through(inner)
    if wiring.skip == "stream+block_input":
        link = Link(link.first + state.block_input, link.second + state.block_input)
    link = link.through(outer, a)
    kappa = wiring.second_stream
    if state.second is None or state.to_second is None or kappa is None:
        return replace(state, x=outer.value, to_block_input=link, waiting=None)
    shared = Link(a * state.to_second.first + kappa * update, a * state.to_second.second + kappa * update)
    return replace(
        state,
        x=outer.value,
        to_block_input=link,
        waiting=None,
        second=state.second + kappa**2 * update,
        to_second=shared.through(outer),
    )


def _end(norms: Norms, state: _State, geometry: Geometry) -> tuple[Elementwise, Array]:
    spec = norms.spec
    last = state.x if state.second is None else state.second
    final = norms.around()(last, geometry) if spec.has_final_norm else identity(last)
    if state.second is None or state.to_second is None:
        return final, final.value
    # E⟨x_i, N(y)_j⟩: the norm stands on the second stream.
    link = state.to_second.first * final.second + state.to_second.second * final.first
    return final, state.x + final.value + link


def _check(covariance: Array) -> None:
    if not np.abs(covariance).max() < _OVERFLOW:
        raise NoTheory("the stream overflows")
