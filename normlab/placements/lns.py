"""LayerNorm Scaling: Pre-LN with the normed input of block ℓ divided by √ℓ."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def lns(where: Where) -> Wiring:
    """Pre-LN with both norms of block ℓ times 1/√ℓ."""
    return Wiring(inner_norm=True, input_scale=where.layer**-0.5)


register_placement(
    Placement(
        name="lns",
        equation="x ← x + F(N(x)/√ℓ) in block ℓ",
        source="Sun et al. 2025, arXiv 2502.05795",
        wiring=lns,
        final_norm=True,
    )
)
