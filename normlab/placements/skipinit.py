"""SkipInit: a residual network without norms whose branches start small."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def skipinit(where: Where, *, initial: float = 0.0) -> Wiring:
    """Every branch times a learnable number.

    Args:
        where: the sub-layer's address.
        initial: where the number starts.
    """
    return Wiring(branch_scale=initial, learn_branch_scale="scalar")


register_placement(
    Placement(
        name="skipinit",
        equation="x ← x + b F(x),  b a learnable number, 0 at initialisation (option initial)",
        source="De and Smith 2020, arXiv 2002.10444",
        wiring=skipinit,
        final_norm=False,
    )
)
