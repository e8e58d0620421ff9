"""HybridNorm: norms on queries, keys and values in attention, a normed skip at the MLP."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def hybridnorm(where: Where, *, star: bool = False) -> Wiring:
    """The stream enters attention as it is; the MLP and its skip read the normed stream.

    Args:
        where: the sub-layer's address.
        star: the variant HybridNorm*, whose first block is Pre-LN (with norms on queries, keys and values).
    """
    first = star and where.layer == 1
    if where.sublayer == "mlp":
        return Wiring(inner_norm=True, skip="stream" if first else "normed")
    return Wiring(qkv_norm=True, inner_norm=first)


register_placement(
    Placement(
        name="hybridnorm",
        equation="x ← x + Attn(x) with N on q, k and v;  x ← N(x) + F(N(x)) at the MLP",
        source="Zhuo et al. 2025, arXiv 2503.04598",
        wiring=hybridnorm,
        final_norm=True,
    )
)
