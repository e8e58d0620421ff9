"""A norm on the stream after every k-th block, and none inside: what "Peri-LN" is sometimes taken to mean."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def periodic(where: Where, *, every: int = 2) -> Wiring:
    """A norm on the stream after the last sub-layer of every k-th block.

    Args:
        where: the sub-layer's address.
        every: k.
    """
    return Wiring(outer_norm=every > 0 and where.sublayer == "mlp" and where.layer % every == 0)


register_placement(
    Placement(
        name="periodic",
        equation="x ← x + F(x);  x ← N(x) after every k-th block, option every = k",
        source="a reading of the name Peri-LN; not the placement of arXiv 2502.02732",
        wiring=periodic,
        final_norm=False,
    )
)
