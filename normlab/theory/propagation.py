"""Averaged partial Jacobian norms between layers, and growth per layer (equations J1 and J2 of ``docs/theory.md``)."""

from collections.abc import Iterator

import numpy as np

from normlab.theory.backward import Gradient, at_embedding, step_back
from normlab.theory.forward import Forward
from normlab.theory.rows import Row, row


def jacobian_rows(forward: Forward) -> Iterator[Row]:
    """Yield ``apjn`` from each layer to the last, and each layer's exponent ½ ln APJN(ℓ − 1 → ℓ)."""
    if any(step.second is not None for step in forward.steps):
        return
    own = forward.geometry.own
    depth = forward.spec.stacks[forward.stack]
    for layer, value in end_to_end(forward):
        at: Row = {"stack": forward.stack, "layer": layer, "to_layer": depth}
        yield row(at, "", "apjn", value)
    for layer in range(1, depth + 1):
        state = Gradient(own + 0 * forward.out)
        for step in reversed([step for step in forward.steps if step.where.layer == layer]):
            state, _ = step_back(step, state, parameters=False)
        growth = float(np.log(forward.geometry.trace(state.x) / forward.geometry.count)) / 2
        at = {"stack": forward.stack, "layer": layer - 1, "to_layer": layer}
        yield row(at, "", "lyapunov", growth) | {"status": "ok"}


def end_to_end(forward: Forward) -> Iterator[tuple[int, float]]:
    """Yield ℓ and APJN(ℓ → L) = E‖∂x_L/∂x_ℓ‖²/(n d), from the last layer but one to the first (J1)."""
    state = Gradient(forward.geometry.own + 0 * forward.out)
    for step in reversed(forward.steps):
        state, _ = step_back(step, state, parameters=False)
        if step.starts_block:
            yield step.where.layer - 1, forward.geometry.trace(at_embedding(forward, state)) / forward.geometry.count
