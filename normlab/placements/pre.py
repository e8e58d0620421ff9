"""Pre-LN: the norm stands at the entry of each branch; the stream itself is never normalized."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring

register_placement(
    Placement(
        name="pre",
        equation="x ← x + F(N(x))",
        source="Xiong et al. 2020, arXiv 2002.04745",
        wiring=Wiring(inner_norm=True),
        final_norm=True,
    )
)
