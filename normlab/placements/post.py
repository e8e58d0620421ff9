"""Post-LN: the norm stands on the stream, after each residual sum."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring

register_placement(
    Placement(
        name="post",
        equation="x ← N(x + F(x))",
        source="Vaswani et al. 2017, arXiv 1706.03762",
        wiring=Wiring(outer_norm=True),
        final_norm=False,
    )
)
