"""B2T: Post-LN with a connection around all norms of a block but the last."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def b2t(where: Where) -> Wiring:
    """Post-LN; the block's last sum also gets the block's input."""
    return Wiring(outer_norm=True, skip="stream+block_input" if where.sublayer == "mlp" else "stream")


register_placement(
    Placement(
        name="b2t",
        equation="x ← N(x + F(x)), and at the MLP x ← N(x_block + x + F(x)) with the block's input x_block",
        source="Takase et al. 2022, arXiv 2206.00330",
        wiring=b2t,
        final_norm=False,
    )
)
