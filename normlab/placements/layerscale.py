"""LayerScale: Pre-LN with a small learnable factor for each feature of each branch."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def layerscale_initial(depth: int) -> float:
    """0.1 up to 18 blocks, 1e-5 up to 24, 1e-6 beyond."""
    return 0.1 if depth <= 18 else 1e-5 if depth <= 24 else 1e-6


def layerscale(where: Where, *, initial: float = 0.0) -> Wiring:
    """Pre-LN with every branch times diag(b).

    Args:
        where: the sub-layer's address.
        initial: where b starts; 0 takes it from the depth.
    """
    value = initial or layerscale_initial(where.depth)
    return Wiring(inner_norm=True, branch_scale=value, learn_branch_scale="channel")


register_placement(
    Placement(
        name="layerscale",
        equation="x ← x + b ⊙ F(N(x)),  b learnable from 0.1 (L ≤ 18), 1e-5 (L ≤ 24) or 1e-6",
        source="Touvron et al. 2021 (CaiT), arXiv 2103.17239",
        wiring=layerscale,
        final_norm=True,
    )
)
