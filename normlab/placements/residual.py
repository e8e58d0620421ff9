"""ResiDual: a Post-LN stream, and a second stream that collects the same updates unnormed."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def residual(where: Where, *, scale: float = 1.0) -> Wiring:
    """Two streams.

    Args:
        where: the sub-layer's address.
        scale: κ, which keeps the second stream small in half precision; its norm takes κ out again.
    """
    return Wiring(second_stream=scale)


register_placement(
    Placement(
        name="residual",
        equation="u = F(x),  x ← N(x + u),  y ← y + κ u;  y₀ = κ x₀, output x + N(y)",
        source="Xie et al. 2023 (ResiDual), arXiv 2304.14802",
        wiring=residual,
        final_norm=True,
    )
)
