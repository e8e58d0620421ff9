"""The stream's covariance from the embedding to the head (equations F1 to F6 of ``docs/theory.md``).

The walk reads the same :class:`~normlab.placements.Wiring` as a block, so it knows no placement by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from normlab.placements import Wiring
from normlab.spec import ModelSpec
from normlab.theory.copies import replace
from normlab.theory.elementwise import Elementwise, identity, scaled
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.matrices import gains
from normlab.theory.mixing import AttentionMap, attention_map
from normlab.theory.mlp import MlpMap, mlp_map
from normlab.theory.norms import Norms, Reads
from normlab.theory.reasons import NoTheory
from normlab.theory.scatter import Log, Spread, after_sum, of_mean_square, of_start
from normlab.theory.start import embedded
from normlab.theory.state import Held, State, begin, joined, skipped
from normlab.theory.step import Step
from normlab.where import StackName, Where

#: A mean square beyond which numbers of a float32 model overflow.
_OVERFLOW = 1e30
#: A mean square below which tokens are the same.
_SMALL = 1e-30


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
        last: covariance of the stream after the last block.
        of_embed: spread of the mean square of the stream at layer 0.
        log: covariance of the logarithms of the last stream (S2).
        broken: where the walk ended early, and why.
        rough: relative variance of ⟨x_i, x_j⟩ of different tokens after the last block (S6).
        source: the encoder's pass, whose output a decoder's cross-attention reads (C1).
        held: how much of the embedding ``out`` holds (H5).
    """

    spec: ModelSpec
    geometry: Geometry
    stack: StackName
    embed: Elementwise
    steps: tuple[Step, ...]
    final: Elementwise
    out: Array
    last: Array
    of_embed: Spread = Spread()
    log: Log = 0.0
    broken: str = ""
    rough: float = 0.0
    source: "Forward | None" = None
    held: Held = Held()

    @property
    def stacks(self) -> tuple["Forward", ...]:
        """The passes of all stacks, in the order in which they run."""
        return (self,) if self.source is None else (self.source, self)


def forward(spec: ModelSpec, geometry: Geometry, *, finite: bool = True) -> Forward:
    """Walk through the model: through its encoder first, where it has one and a decoder too.

    Args:
        spec: the model.
        geometry: the pairs of tokens.
        finite: whether directions that norms take out of a gradient count, a share of order 1/d each.

    Returns:
        The last stack's pass; :attr:`Forward.source` is its encoder's.

    Raises:
        NoTheory: a part of the model has no mean-field closure; what was reached before counts for nothing, except
            where the numbers themselves leave its range (:attr:`Forward.broken`).
    """
    norms = Norms(spec, finite)
    *before, last = spec.stacks
    source = None
    for stack in before:
        source = _walk(norms, stack, geometry.source or geometry, None)
    return _walk(norms, last, geometry, source)


def _walk(norms: Norms, stack: StackName, geometry: Geometry, source: Forward | None) -> Forward:
    spec = norms.spec
    covariance, level = embedded(spec, stack, geometry)
    embed, held = identity(covariance), Held()
    if spec.has_embed_norm:
        embed = norms.around()(covariance, geometry, mean=level)
        held = held.normed(embed)
    kappa = spec.wiring(spec.first(stack)).second_stream
    start: Log = of_start(embed.value, spec.width, geometry) if norms.finite and not spec.has_embed_norm else 0.0
    state = begin(embed.value, level, held, kappa, norms.finite / spec.width, start)
    of_embed = of_mean_square(start, embed.value, geometry)
    steps: list[Step] = []
    broken = "" if source is None else source.broken
    for where in () if broken else _addresses(spec, stack):
        try:
            state, step = _step(norms, where, state, geometry, source)
        except NoTheory as reason:
            broken = str(reason)
            break
        steps.append(step)
    final, out, held = _end(norms, state, geometry)
    return Forward(
        spec=spec,
        geometry=geometry,
        stack=stack,
        embed=embed,
        steps=tuple(steps),
        final=final,
        out=out,
        last=state.x,
        of_embed=of_embed,
        log=state.log,
        broken=broken,
        rough=state.rough,
        source=source,
        held=held,
    )


def _addresses(spec: ModelSpec, stack: StackName) -> Iterator[Where]:
    for layer in range(1, spec.stacks[stack] + 1):
        for sublayer in spec.sublayers(stack):
            yield spec.where(stack, layer, sublayer)


def _step(norms: Norms, where: Where, state: State, geometry: Geometry, encoder: Forward | None) -> tuple[State, Step]:
    """One sub-layer of the unified block (F1)."""
    spec = norms.spec
    wiring = spec.wiring(where)
    if where.sublayer == spec.sublayers(where.stack)[0]:
        state = state.entered
    source, held = (state.block_input, state.block_held) if spec.parallel else (state.x, state.held)
    inner = identity(source)
    if wiring.inner_norm:
        reads: Reads = "stream" if wiring.skip == "normed" else "entry"
        inner = norms.around()(source, geometry, mean=held.tilt**2 * state.level, on=reads)
    inputs = scaled(wiring.input_scale**2, inner.value)
    mixer = _mixer(norms, where, wiring, inputs, geometry, state.rough, encoder)
    branch = mixer.value
    output = identity(branch)
    if wiring.output_norm:
        output = norms.around(initial_gain=wiring.output_gain)(branch, geometry, on="fresh")
    dropped = 1 + geometry.own * (spec.dropout / (1 - spec.dropout)) if spec.dropout else 1.0
    update = scaled(wiring.branch_scale**2, output.value)
    update = update * dropped if spec.dropout else update
    waits = spec.parallel and where.sublayer == "attn"
    skip, held = skipped(wiring, inner, source, state)
    if state.waiting is not None:
        update = update + state.waiting
    total = update if waits or skip is None else skip + update
    _check(total)
    outer = identity(total)
    if wiring.norms_stream and not waits:
        outer = norms.around()(total, geometry, mean=held.tilt**2 * state.level, on="stream")
    after = replace(state, waiting=update) if waits else joined(state, wiring, inner, outer, update, held)
    levels = {"stream": outer.value, "second": after.second, "skip": skip, "update": update, "total": total}
    levels |= {"inputs": inputs, "branch": branch}
    means = geometry.all_means(levels)
    log: Log = 0.0
    if norms.finite and not waits:
        log = after_sum(state.log, wiring, skip, update, total, mixer.excess, spec.width, geometry)
        rough = _rougher(state.rough, means.get("skip"), means["update"], mixer, geometry)
        after = replace(after, rough=rough, log=0.0 if wiring.norms_stream else log)
    step = Step(
        where=where,
        wiring=wiring,
        inner=inner.sparing,
        mixer=mixer,
        output=output.sparing,
        outer=outer.sparing,
        waits=waits,
        dropped=dropped,
        term=_term(wiring, output, skip),
        means=means,
        log_before=state.log if wiring.skip == "normed" else 0.0,
        singles_before=_singles(state.log, geometry) if wiring.inner_norm and wiring.skip != "normed" else 0.0,
        log=log if wiring.norms_stream else 0.0,
        of_stream=of_mean_square(after.log, outer.value, geometry),
        of_total=of_mean_square(log, total, geometry) if wiring.norms_stream else Spread(),
    )
    return after, step


def _singles(log: Log, geometry: Geometry) -> Log:
    return log if isinstance(log, float) else geometry.singles(log)


def _term(wiring: Wiring, output: Elementwise, skip: Array | None) -> Array | None:
    """Return what a learnable branch scale multiplies; where the skip follows it, that has a share (B5)."""
    if not wiring.learn_branch_scale:
        return None
    if wiring.interpolate and skip is not None and wiring.skip_scale:
        return output.value + skip / wiring.skip_scale**2
    return output.value


def _rougher(
    rough: float, skip: Array | None, update: Array, mixer: AttentionMap | MlpMap, geometry: Geometry
) -> float:
    """Return the relative variance of ⟨x_i, x_j⟩ of different tokens after the sum (S6)."""
    width = mixer.gains.width
    kept, fresh = (0.0 if one is None else max(float(geometry.apart(one)), 0.0) for one in (skip, update))
    total = kept + fresh
    if total < _SMALL:
        return rough
    hidden = width / mixer.gains.fan_in("down" if isinstance(mixer, MlpMap) else "o")
    # What was there is carried on by the skip and by the branch alike.
    return rough + (2 * kept * fresh + (1 + hidden) * fresh**2) / (width * total**2)


def _mixer(
    norms: Norms,
    where: Where,
    wiring: Wiring,
    inputs: Array,
    geometry: Geometry,
    rough: float,
    encoder: Forward | None,
) -> AttentionMap | MlpMap:
    shapes = norms.once(where.sublayer, lambda: norms.spec.matrices(where.sublayer))
    matrices = gains(norms.spec, where, shapes)
    if where.sublayer == "mlp":
        return mlp_map(norms, wiring, matrices, inputs, geometry)
    if where.sublayer == "cross" and encoder is not None:
        memory, rough = encoder.out, encoder.rough
        return attention_map(norms, where, wiring, matrices, inputs, geometry, rough, memory=memory)
    return attention_map(norms, where, wiring, matrices, inputs, geometry, rough)


def _end(norms: Norms, state: State, geometry: Geometry) -> tuple[Elementwise, Array, Held]:
    spec = norms.spec
    last, held = (state.x, state.held) if state.second is None else (state.second, state.second_held)
    final, kept = identity(last), held
    if spec.has_final_norm:
        final = norms.around()(last, geometry, mean=held.tilt**2 * state.level)
        kept = held.normed(final)
    if state.second is None or state.to_second is None:
        return final, final.value, kept
    # E⟨x_i, N(y)_j⟩: the norm stands on the second stream.
    mean = held.tilt * state.held.tilt * state.level if spec.has_final_norm else 0.0
    first, second = state.to_second.first - mean, state.to_second.second - mean
    return final, state.x + final.value + first * final.second + second * final.first, state.held + kept


def _check(covariance: Array) -> None:
    if not np.abs(covariance).max() < _OVERFLOW:
        raise NoTheory("the stream overflows")
