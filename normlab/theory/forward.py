"""The stream's covariance from the embedding to the head (equations F1 to F6 of ``docs/theory.md``).

The walk reads the same :class:`~normlab.placements.Wiring` as a block, so it knows no placement by name.
"""

from dataclasses import dataclass

from normlab.spec import ModelSpec
from normlab.theory.elementwise import Elementwise, identity
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.norms import Norms
from normlab.theory.scatter import Log, Scatter, Spread, of_mean_square, of_start
from normlab.theory.start import embedded
from normlab.theory.state import Held, State, begin
from normlab.theory.step import Step
from normlab.theory.walk import at_once, one_by_one
from normlab.where import StackName


@dataclass(frozen=True, eq=False)
class Forward:
    """Everything that the backward pass and the table need of the forward pass.

    Attributes:
        spec: the model.
        geometry: the pairs of tokens.
        stack: the stack's name.
        embed: the norm after the embedding; its value is the stream at layer 0.
        steps: the sub-layers, in order; those that were carried at once are one, the last's comes last.
        final: the norm after the last block, or the sum of both streams.
        out: covariance of what the head sees.
        last: covariance of the stream after the last block.
        of_embed: spread of the mean square of the stream at layer 0.
        log: covariance of the logarithms of the last stream (S2).
        broken: where the walk ended early, and why.
        rough: relative variance of ⟨x_i, x_j⟩ of different tokens after the last block (S6).
        source: the encoder's pass, whose output a decoder's cross-attention reads (C1).
        held: how much of the embedding ``out`` holds (H5).
        together: whether sub-layers that are alike were carried at once, and are one step.
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
    together: bool = False

    @property
    def stacks(self) -> tuple["Forward", ...]:
        """The passes of all stacks, in the order in which they run."""
        return (self,) if self.source is None else (self.source, self)


def forward(spec: ModelSpec, geometry: Geometry, *, finite: bool = True, together: bool = False) -> Forward:
    """Walk through the model: through its encoder first, where it has one and a decoder too.

    Args:
        spec: the model.
        geometry: the pairs of tokens.
        finite: whether directions that norms take out of a gradient count, a share of order 1/d each.
        together: whether sub-layers that are alike become one step, whose entries have a first axis; for averages.

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
        source = _walk(norms, stack, geometry.source or geometry, None, together)
    return _walk(norms, last, geometry, source, together)


def _walk(norms: Norms, stack: StackName, geometry: Geometry, source: Forward | None, together: bool) -> Forward:
    spec = norms.spec
    covariance, level = embedded(spec, stack, geometry)
    embed, held = identity(covariance), Held()
    if spec.has_embed_norm:
        embed = norms.around()(covariance, geometry, mean=level)
        held = held.normed(embed)
    kappa = spec.wiring(spec.first(stack)).second_stream
    start: Log = of_start(embed.value, spec.width, geometry) if norms.finite and not spec.has_embed_norm else 0.0
    state = begin(embed.value, level, held, kappa)
    scatter = Scatter(start, norms.finite / spec.width)
    steps: list[Step] = []
    broken = "" if source is None else source.broken
    if not broken:
        memory = None if source is None else (source.out, source.rough)
        walk = at_once if together else one_by_one
        steps, state, scatter, broken = walk(norms, stack, state, scatter, geometry, memory)
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
        of_embed=of_mean_square(start, embed.value, geometry),
        log=scatter.log,
        broken=broken,
        rough=scatter.rough,
        source=source,
        held=held,
        together=together,
    )


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
