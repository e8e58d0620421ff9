"""Peri-LN: a norm at the entry and another at the exit of each branch."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring

register_placement(
    Placement(
        name="peri",
        equation="x ← x + N(F(N(x)))",
        source="Kim et al. 2025, arXiv 2502.02732; the sandwich of Ding et al. 2021, arXiv 2105.13290",
        wiring=Wiring(inner_norm=True, output_norm=True),
        final_norm=True,
    )
)
