"""DeepNorm: Post-LN with the skip scaled up; the init of the same name scales the branch down."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def deepnorm_alpha(where: Where) -> float:
    """α for N encoder and M decoder blocks.

    One stack of L blocks: (2L)^¼. Both stacks: 0.81 (N⁴M)^(1/16) in the encoder, (3M)^¼ in the decoder.
    """
    encoder, decoder = where.encoder_depth, where.decoder_depth
    if not (encoder and decoder):
        return float((2 * where.depth) ** 0.25)
    return float(0.81 * (encoder**4 * decoder) ** (1 / 16) if where.stack == "encoder" else (3 * decoder) ** 0.25)


def deepnorm(where: Where) -> Wiring:
    """Post-LN with the skip times α."""
    return Wiring(outer_norm=True, skip_scale=deepnorm_alpha(where))


register_placement(
    Placement(
        name="deepnorm",
        equation="x ← N(α x + F(x)),  α = (2L)^¼;  with both stacks 0.81 (N⁴M)^(1/16) and (3M)^¼",
        source="Wang et al. 2022 (DeepNet), arXiv 2203.00555",
        wiring=deepnorm,
        final_norm=False,
    )
)
