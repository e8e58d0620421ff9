"""CompleteP and depth-μP: Pre-LN with every branch divided by a power of the depth."""

from normlab.errors import SpecError
from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def completep(where: Where, *, alpha: float = 1.0, base_depth: int = 1) -> Wiring:
    """Pre-LN with every branch times (L/L_base)^−α.

    Args:
        where: the sub-layer's address.
        alpha: α; 1 is CompleteP, ½ is depth-μP.
        base_depth: L_base, the depth at which the branch is not scaled.

    Raises:
        SpecError: a base depth below 1.
    """
    if base_depth < 1:
        raise SpecError(f"placement 'completep' got base_depth={base_depth}: give a whole number of at least 1")
    return Wiring(inner_norm=True, branch_scale=(where.depth / base_depth) ** -alpha)


register_placement(
    Placement(
        name="completep",
        equation="x ← x + (L/L_base)^−α F(N(x)),  α = 1;  α = ½ is depth-μP",
        source="Dey et al. 2025, arXiv 2505.01618; Bordelon et al. 2023, arXiv 2309.16620; "
        "Yang et al. 2023, arXiv 2310.02244",
        wiring=completep,
        final_norm=True,
    )
)
