"""Mix-LN: Post-LN in the first blocks, Pre-LN in the others."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def mix_ln(where: Where, *, alpha: float = 0.25) -> Wiring:
    """Post-LN up to block ⌊α L⌋, Pre-LN from there on.

    Args:
        where: the sub-layer's address.
        alpha: α, the share of blocks that are Post-LN.
    """
    post = where.layer <= alpha * where.depth
    return Wiring(outer_norm=post, inner_norm=not post)


register_placement(
    Placement(
        name="mix-ln",
        equation="x ← N(x + F(x)) in blocks 1 to ⌊α L⌋,  x ← x + F(N(x)) in the others",
        source="Li et al. 2024, arXiv 2412.13795",
        wiring=mix_ln,
        final_norm=True,
    )
)
