"""A residual network without norms."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring

register_placement(
    Placement(
        name="none",
        equation="x ← x + F(x)",
        source="He et al. 2016, arXiv 1603.05027",
        wiring=Wiring(),
        final_norm=False,
    )
)
