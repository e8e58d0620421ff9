"""The gradient's covariance from the head to the embedding (equations B1 to B6 of ``docs/theory.md``).

Forward values and gradients are taken as independent, as at initialisation the matrices that carry a gradient back
are used transposed on vectors that know nothing of the values.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from normlab.theory.elementwise import added
from normlab.theory.forward import Forward, Link, Step
from normlab.theory.kernels import Array


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
    """

    step: Step
    total: Array
    update: Array
    branch: Array
    inputs: Array
    before: Array
    roles: dict[str, Array]


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
        fresh: the share of ``x`` that has joined it since the last norm on the stream.
    """

    x: Array
    second: Array | None = None
    to_second: Link | None = None
    direct: Array | None = None
    to_direct: Link | None = None
    shared: Array | None = None
    fresh: Array | float = 1.0


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


def at_streams(forward: Forward, gradient: Array) -> Gradient:
    """Return the gradient before the final norm (B1)."""
    final = forward.final
    through = gradient * final.slope
    if not forward.steps or forward.steps[-1].second is None:
        return Gradient(through)
    return Gradient(gradient, through, Link(gradient * final.second, gradient * final.first))


def at_embedding(forward: Forward, state: Gradient) -> Array:
    """Return the gradient at the stream that the first block receives: both streams start from it (B6)."""
    if state.second is None or state.to_second is None:
        return state.x
    kappa = forward.steps[0].wiring.second_stream or 0.0
    return state.x + kappa**2 * state.second + kappa * state.to_second.both


def step_back(step: Step, state: Gradient, *, parameters: bool = True) -> tuple[Gradient, StepBack]:
    """Carry a gradient through one sub-layer (B2 to B5), with or without the gradients of its parameters."""
    wiring = step.wiring
    a = 0.0 if wiring.skip == "none" else wiring.skip_scale
    outer = step.outer.slope * (1 - step.outer.lost * state.fresh)
    total = state.shared if step.waits and state.shared is not None else state.x * outer
    update, second = _update(step, state, total, a)
    at_output = wiring.branch_scale**2 * update * step.dropped
    branch = at_output * step.output.slope
    inputs, roles = step.mixer.backward(branch, roles=parameters)
    at_inner = wiring.input_scale**2 * inputs
    skipped = state.x if step.waits else a**2 * total
    fresh = state.fresh if step.waits or not step.wiring.norms_stream else 0.0
    if wiring.skip == "normed":
        at_inner = at_inner + skipped
        fresh = 1 - (1 - fresh) * _share(skipped, at_inner)
        before = at_inner * step.inner.slope * (1 - step.inner.lost * fresh)
        fresh = 0.0
    else:
        before = skipped + at_inner * step.inner.slope
        fresh = 1 - (1 - fresh) * _share(skipped, before)
    if parameters:
        norms = [step.inner.roles(at_inner), step.output.roles(at_output)]
        if not step.waits:
            norms.append(step.outer.roles(state.x))
        roles = added(roles, _scale(step, update), *norms)
    state = _into_block_input(step, _before(step, state, before, total, second, fresh))
    return state, StepBack(step, total, update, branch, _at_input(step, inputs, at_inner, state.x), state.x, roles)


def _at_input(step: Step, inputs: Array, at_inner: Array, before: Array) -> Array:
    """Return the gradient at the tensor that F reads, which without a norm or a scale is also the skip's."""
    if step.wiring.input_scale != 1:
        return inputs
    return at_inner if step.wiring.inner_norm else before


def _share(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.ones_like(whole), where=whole != 0)


def _update(step: Step, state: Gradient, total: Array, a: float) -> tuple[Array, Link | None]:
    """Return the gradient at the update, which two streams may share, and its link carried past the sum (B4)."""
    if state.second is None or state.to_second is None:
        return total, None
    kappa = step.wiring.second_stream or 0.0
    link = state.to_second.through(step.outer)
    return total + kappa**2 * state.second + kappa * link.both, Link(a * link.first, a * link.second)


def _scale(step: Step, update: Array) -> dict[str, Array]:
    """Return the entries of a learnable branch scale; where the skip follows it, that has a share (B5)."""
    wiring = step.wiring
    if not wiring.learn_branch_scale:
        return {}
    term = step.output.value
    if wiring.interpolate and step.skip is not None and wiring.skip_scale:
        term = term + step.skip / wiring.skip_scale**2
    return {"branch_scale": update * term}


def _before(
    step: Step, state: Gradient, before: Array, total: Array, second: Link | None, fresh: Array | float
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
    return Gradient(before, state.second, second, direct, link, shared, fresh)


def _into_block_input(step: Step, state: Gradient) -> Gradient:
    """Add what a connection around the block's sub-layers brings back to its input (B3)."""
    if not step.starts_block or state.direct is None or state.to_direct is None:
        return state
    return replace(state, x=state.x + state.direct + state.to_direct.both, direct=None, to_direct=None)
