"""The streams between two sub-layers, and how a sum makes the next ones (equations F2 to F4 and F6).

The last matrix of a sub-layer is fresh, so that its update is uncorrelated with everything before.
"""

from dataclasses import dataclass

from normlab.placements import Wiring
from normlab.theory.copies import replace
from normlab.theory.elementwise import Elementwise, is_one, scaled
from normlab.theory.kernels import Array


@dataclass(frozen=True, eq=False)
class Link:
    """The covariance of two streams a and b: for each pair E⟨a_i, b_j⟩ and E⟨b_i, a_j⟩."""

    first: Array
    second: Array

    @property
    def both(self) -> Array:
        """Their sum, which is what ⟨a + b, a + b⟩ has besides the two streams' own covariances."""
        return self.first + self.second

    def through(self, map_: Elementwise, factor: float | Array = 1.0, mean: Array | float = 0.0) -> "Link":
        """Return the covariance of factor · M(a) and b; ``mean`` is that of a's features times that of b's (F6)."""
        if isinstance(map_.first, float) and isinstance(mean, float) and not mean:
            return self.times(factor)
        first, second = self.first - mean, self.second - mean
        return Link(first * map_.first * factor, second * map_.second * factor)

    def times(self, factor: float | Array) -> "Link":
        """Return the covariance of factor · a and b."""
        return self if is_one(factor) else Link(factor * self.first, factor * self.second)


@dataclass(frozen=True, eq=False)
class Held:
    """How much of its embedding a stream still holds: x_i = held_i · x_0,i + what is independent of it (F6, H5).

    Attributes:
        first: of the first token of each pair.
        second: of the second one.
        tilt: the same of the mean over features, which a norm may have subtracted: then it is 0.
    """

    first: Array | float = 1.0
    second: Array | float = 1.0
    tilt: Array | float = 1.0

    def __add__(self, other: "Held") -> "Held":
        return Held(self.first + other.first, self.second + other.second, self.tilt + other.tilt)

    def times(self, factor: float | Array) -> "Held":
        """Return what factor · x holds."""
        return self if is_one(factor) else Held(factor * self.first, factor * self.second, factor * self.tilt)

    def normed(self, map_: Elementwise) -> "Held":
        """Return what a norm of x holds."""
        return Held(self.first * map_.first, self.second * map_.second, 0.0)


_NOTHING = Held(0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class State:
    """What one sub-layer hands to the next.

    Attributes:
        x: covariance of the stream.
        block_input: of what the block received.
        to_block_input: of both.
        level: product of the means over features of two tokens' embeddings (E4).
        held: what the stream holds of the embedding.
        block_held: the same of the block's input.
        second: covariance of the second stream.
        to_second: of both streams.
        second_held: what the second stream holds.
        waiting: an update that waits for the next sub-layer's sum.
    """

    x: Array
    block_input: Array
    to_block_input: Link
    level: Array | float = 0.0
    held: Held = Held()
    block_held: Held = Held()
    second: Array | None = None
    to_second: Link | None = None
    second_held: Held = _NOTHING
    waiting: Array | None = None

    @property
    def entered(self) -> "State":
        """The state in which a block begins."""
        return replace(self, block_input=self.x, to_block_input=Link(self.x, self.x), block_held=self.held)


def begin(x: Array, level: Array | float, held: Held, kappa: float | None) -> State:
    """Return the state before the first block; with ``kappa`` a second stream starts at κ x."""
    state = State(x, x, Link(x, x), level, held, held)
    if kappa is None:
        return state
    return replace(state, second=kappa**2 * x, to_second=Link(kappa * x, kappa * x), second_held=held.times(kappa))


def skipped(wiring: Wiring, inner: Elementwise, x: Array, state: State) -> tuple[Array | None, Held]:
    """Return the covariance of what an update is added to, and what that holds of the embedding."""
    a = wiring.skip_scale
    match wiring.skip:
        case "none":
            return None, _NOTHING
        case "normed":
            held = state.held.normed(inner) if wiring.inner_norm else state.held
            return scaled(a**2, inner.value), held.times(a)
        case "stream+block_input":
            both = x + state.block_input + state.to_block_input.both
            return scaled(a**2, both), (state.held + state.block_held).times(a)
    return scaled(a**2, x), state.held.times(a)


def joined(state: State, wiring: Wiring, inner: Elementwise, outer: Elementwise, update: Array, held: Held) -> State:
    """Return the state after the sum, which holds ``held`` of the embedding."""
    a = 0.0 if wiring.skip == "none" else wiring.skip_scale
    normed, level = wiring.norms_stream, state.level
    link = state.to_block_input
    if wiring.skip == "normed":
        link = link.through(inner, mean=state.held.tilt * state.block_held.tilt * level)
    if wiring.skip == "stream+block_input":
        link = Link(link.first + state.block_input, link.second + state.block_input)
    around = held.tilt * state.block_held.tilt * level if normed else 0.0
    link = link.times(a).through(outer, mean=around)
    after = replace(
        state, x=outer.value, to_block_input=link, held=held.normed(outer) if normed else held, waiting=None
    )
    kappa = wiring.second_stream
    if state.second is None or state.to_second is None or kappa is None:
        return after
    shared = Link(a * state.to_second.first + kappa * update, a * state.to_second.second + kappa * update)
    across = held.tilt * state.second_held.tilt * level if normed else 0.0
    return replace(after, second=state.second + kappa**2 * update, to_second=shared.through(outer, mean=across))
