"""The gradient's covariance from the head to the embedding (equations B1 to B6 of ``docs/theory.md``).

Forward values and gradients are taken as independent, as at initialisation the matrices that carry a gradient back
are used transposed on vectors that know nothing of the values.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from normlab.theory.copies import replace
from normlab.theory.elementwise import Elementwise, added, is_one, of_first, scaled
from normlab.theory.forward import Forward
from normlab.theory.geometry import Numbers
from normlab.theory.kernels import Array
from normlab.theory.state import Link
from normlab.theory.step import Step


@dataclass(frozen=True, eq=False)
class StepBack:
    """Gradients around one sub-layer.

    Attributes:
        step: the sub-layer.
        total: the gradient's covariance at the sum.
        update: at the update.
        branch: at the branch.
        inputs: at the input.
        before: at the stream before it.
        roles: entries that sum to E‖∂loss/∂θ‖², by role.
        memory: what it sends to the encoder's output (C2).
        sums: of what there is more than a linear map (:class:`~normlab.theory.elementwise.Back`).
    """

    step: Step
    total: Array
    update: Array
    branch: Array
    inputs: Array
    before: Array
    roles: dict[str, Array]
    memory: Array | None = None
    sums: tuple[Numbers, Numbers] | None = None


@dataclass(frozen=True, eq=False)
class Gradient:
    """A gradient on its way back.

    Attributes:
        x: of the stream.
        second: of the second stream.
        to_second: its covariance with the stream's.
        direct: of the block's input, by a connection around the sub-layers between.
        to_direct: its covariance with the stream's.
        shared: of the sum that a waiting update belongs to.
        old: the part of ``x`` that was there at the last norm on the stream.
        along: what goes along the token, where the head is the embedding and a norm on the stream feeds it (H7).
    """

    x: Array
    second: Array | None = None
    to_second: Link | None = None
    direct: Array | None = None
    to_direct: Link | None = None
    shared: Array | None = None
    old: Array | float = 0.0
    along: Array | float = 0.0


def backward(forward: Forward, gradient: Array) -> Iterator[StepBack]:
    """Yield the gradients around each sub-layer, from the last to the first.

    Args:
        forward: the forward pass.
        gradient: E⟨g_i, g_j⟩ at what the head sees.
    """
    state = at_streams(forward, gradient)
    for step in reversed(forward.steps):
        state, back = step_back(step, state)
        yield back


def at_streams(forward: Forward, gradient: Array, lost: Array | float = 0.0) -> Gradient:
    """Return the gradient before the final norm (B1).

    Args:
        forward: the forward pass.
        gradient: at what the head sees.
        lost: what the norm that gives it takes out, as it goes along the token (H7).
    """
    final = forward.final
    if not forward.spec.has_final_norm:
        return Gradient(gradient, along=lost)
    through = final.back(gradient - lost)
    if not forward.steps or forward.steps[-1].second is None:
        return Gradient(through)
    return Gradient(gradient, through, Link(gradient * final.second, gradient * final.first))


def at_embedding(forward: Forward, state: Gradient) -> Array:
    """Return the gradient at the stream that the first block receives: both streams start from it (B6)."""
    if state.second is None or state.to_second is None:
        return state.x
    spec = forward.spec
    kappa = spec.wiring(spec.first(forward.stack)).second_stream or 0.0
    return state.x + kappa**2 * state.second + kappa * state.to_second.both


def step_back(step: Step, state: Gradient, *, parameters: bool = True) -> tuple[Gradient, StepBack]:
    """Carry a gradient through one sub-layer (B2 to B5), with or without the gradients of its parameters.

    ``state`` may hold several gradients, one after the other: what is returned of the sub-layer is the first one's.
    """
    inside, back = within(step, state, parameters=parameters)
    after = into_block_input(step, inside)
    if after is inside:
        return after, back
    before = of_first(after.x, like=step.mixer.inputs)
    return after, replace(back, before=before, inputs=before if back.inputs is back.before else back.inputs)


def within(step: Step, state: Gradient, *, parameters: bool) -> tuple[Gradient, StepBack]:
    """Carry a gradient through one sub-layer, but for what goes around it to the block's input.

    This is linear in all gradients of ``state`` where :attr:`StepBack.sums` is ``None``.
    """
    wiring = step.wiring
    a = 0.0 if wiring.skip == "none" else wiring.skip_scale
    if step.waits and state.shared is not None:
        total = state.shared
    else:
        total = _through(step.outer, state.x - state.along, state.old)
    update, second = _update(step, state, total, a)
    at_output = scaled(wiring.branch_scale**2, update)
    at_output = at_output if isinstance(step.dropped, float) else at_output * step.dropped
    branch = step.output.back(at_output)
    inputs, roles, memory, sums = step.mixer.backward(branch, roles=parameters)
    at_inner = scaled(wiring.input_scale**2, inputs)
    skipped, old = (state.x, state.old) if step.waits else (scaled(a**2, total), scaled(a**2, state.old))
    if wiring.norms_stream and not step.waits:
        old = skipped
    if wiring.skip == "normed":
        at_inner = at_inner + skipped
        before = old = _through(step.inner, at_inner, old)
    else:
        before = skipped + step.inner.back(at_inner)
    views: dict[int, Array] = {}

    def first(entries: Array) -> Array:
        # One array stays one: it is averaged once.
        if id(entries) not in views:
            views[id(entries)] = of_first(entries, like=step.mixer.inputs)
        return views[id(entries)]

    if parameters:
        norms = [step.inner.roles(first(at_inner)), step.output.roles(first(at_output))]
        if not step.waits:
            norms.append(step.outer.roles(first(state.x)))
        scale = {} if step.term is None else {"branch_scale": first(update) * step.term}
        roles = added(roles, scale, *norms)
    state = _before(step, state, before, total, second, old)
    at_input = _at_input(step, inputs, at_inner, state.x)
    return state, StepBack(
        step=step,
        total=first(total),
        update=first(update),
        branch=first(branch),
        inputs=first(at_input),
        before=first(state.x),
        roles=roles,
        memory=None if memory is None else first(memory),
        sums=sums,
    )


def _through(norm: Elementwise, gradient: Array, old: Array | float) -> Array:
    """Return the gradient before a norm, which takes its share out of what has joined since the last one (N3)."""
    before = norm.back(gradient)
    if not norm.lost:
        return before
    return before - norm.lost * norm.back(gradient - old)


def _at_input(step: Step, inputs: Array, at_inner: Array, before: Array) -> Array:
    """Return the gradient at the tensor that F reads, which without a norm or a scale is also the skip's."""
    if not is_one(step.wiring.input_scale):
        return inputs
    return at_inner if step.wiring.inner_norm else before


def _update(step: Step, state: Gradient, total: Array, a: float | Array) -> tuple[Array, Link | None]:
    """Return the gradient at the update, which two streams may share, and its link carried past the sum (B4)."""
    if state.second is None or state.to_second is None:
        return total, None
    kappa = step.wiring.second_stream or 0.0
    link = state.to_second.through(step.outer)
    return total + kappa**2 * state.second + kappa * link.both, link.times(a)


def _before(
    step: Step, state: Gradient, before: Array, total: Array, second: Link | None, old: Array | float
) -> Gradient:
    wiring = step.wiring
    direct, link = state.direct, state.to_direct
    if link is not None:
        link = link.through(step.outer, 0.0 if wiring.skip == "none" else wiring.skip_scale)
        if wiring.skip == "normed":
            link = link.through(step.inner)
    if wiring.skip == "stream+block_input":
        around = wiring.skip_scale**2 * total
        direct = around if direct is None else direct + around
        link = Link(around, around)
    shared = total if step.where.sublayer == "mlp" else None
    return Gradient(before, state.second, second, direct, link, shared, old)


def into_block_input(step: Step, state: Gradient) -> Gradient:
    """Add what a connection around the block's sub-layers brings back to its input (B3)."""
    if not step.where.starts_block or state.direct is None or state.to_direct is None:
        return state
    x, old = state.x + state.direct + state.to_direct.both, state.old
    if isinstance(old, np.ndarray):
        old = old * np.divide(x, state.x, out=np.ones_like(x), where=state.x != 0)
    return replace(state, x=x, old=old, direct=None, to_direct=None)
