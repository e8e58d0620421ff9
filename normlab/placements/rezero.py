"""ReZero: no norms, and every branch times a learnable number that starts at 0."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring

register_placement(
    Placement(
        name="rezero",
        equation="x ← x + b F(x),  b a learnable number a sub-layer, 0 at initialisation",
        source="Bachlechner et al. 2020, arXiv 2003.04887",
        wiring=Wiring(branch_scale=0.0, learn_branch_scale="scalar"),
        final_norm=False,
    )
)
