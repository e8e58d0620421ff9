"""Averaged partial Jacobian norms between layers, and growth per layer (equations J1 and J2 of ``docs/theory.md``).

Both are what becomes of E⟨g_i, g_j⟩ = 1 for a token with itself, started behind the last block and behind each block.
They walk back beside the loss's gradient, as its second and third companions.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from normlab.theory.backward import Gradient
from normlab.theory.copies import replace
from normlab.theory.forward import Forward
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.rows import Row, row


def accompanied(state: Gradient, geometry: Geometry) -> Gradient:
    """Return a gradient behind the last block with the two that E‖∂x_L/∂x_ℓ‖² and one block's growth begin with."""
    own = np.broadcast_to(geometry.own, state.x.shape)
    along = state.along if isinstance(state.along, float) else np.stack([state.along, 0 * own, 0 * own])
    return replace(state, x=np.stack([state.x, own, own]), along=along)


def growths(state: Gradient, geometry: Geometry) -> tuple[Gradient, Array]:
    """At the start of a block, read what became of both; the second begins anew behind the block before."""
    found = geometry.mean_square(state.x)[1:]
    x, old = state.x.copy(), state.old
    x[2] = geometry.own
    if isinstance(old, np.ndarray):
        old = old.copy()
        old[2] = 0.0
    return replace(state, x=x, old=old), found


def jacobian_rows(forward: Forward, found: Sequence[Array]) -> Iterator[Row]:
    """Yield ``apjn`` from each layer to the last, and each layer's exponent ½ ln APJN(ℓ − 1 → ℓ).

    Args:
        forward: the forward pass.
        found: what :func:`growths` found, from the last block to the first.
    """
    if not found:
        return
    to_last, single = np.array(found).T
    layers = np.arange(len(found) - 1, -1, -1)
    at: Row = {"stack": forward.stack, "layer": layers}
    yield row(at | {"to_layer": forward.spec.stacks[forward.stack]}, "", "apjn", to_last)
    yield row(at | {"to_layer": layers + 1}, "", "lyapunov", np.log(single) / 2) | {"status": "ok"}
