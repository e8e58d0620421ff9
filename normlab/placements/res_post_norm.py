"""Swin v2's res-post-norm: the norm at a branch's exit starts with gain 0."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def res_post_norm(where: Where, *, every: int = 0) -> Wiring:
    """γ = 0 makes every block the identity at initialisation.

    Args:
        where: the sub-layer's address.
        every: k, for an extra norm on the stream after every k-th block (6 in Swin v2's Huge and Giant);
            0 for none.
    """
    extra = every > 0 and where.sublayer == "mlp" and where.layer % every == 0
    return Wiring(output_norm=True, output_gain=0.0, outer_norm=extra)


register_placement(
    Placement(
        name="res-post-norm",
        equation="x ← x + N(F(x)), γ = 0 at initialisation;  option every = k: x ← N(x) after every k-th block",
        source="Liu et al. 2022 (Swin v2), arXiv 2111.09883, and its code for γ = 0",
        wiring=res_post_norm,
        final_norm=True,
    )
)
