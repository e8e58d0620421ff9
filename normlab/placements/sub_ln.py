"""Magneto's Sub-LN: a norm at the entry of each branch and another before its last matrix."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring

register_placement(
    Placement(
        name="sub-ln",
        equation="x ← x + W_out N(f(N(x))),  F(z) = W_out f(z)",
        source="Wang et al. 2022 (Magneto), arXiv 2210.06423",
        wiring=Wiring(inner_norm=True, mid_norm=True),
        final_norm=True,
    )
)
