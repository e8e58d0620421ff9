"""Magneto's initialisation: Xavier with v, o and the MLP's matrices times a slowly growing gain."""

import math

from normlab.inits.init import Init, Matrix, register_init
from normlab.inits.xavier import unit_embedding, xavier_std
from normlab.where import Where


def magneto_gain(where: Where) -> float:
    """γ for N encoder and M decoder blocks.

    One stack of L blocks: √ln(2L). Both stacks: √(ln(3M) ln(2N)/3) in the encoder, √ln(3M) in the decoder,
    whose cross-attention is not scaled.
    """
    encoder, decoder = where.encoder_depth, where.decoder_depth
    if not (encoder and decoder):
        return math.sqrt(math.log(2 * where.depth))
    if where.sublayer == "cross":
        return 1.0
    if where.stack == "encoder":
        return math.sqrt(math.log(3 * decoder) * math.log(2 * encoder) / 3)
    return math.sqrt(math.log(3 * decoder))


def magneto_std(matrix: Matrix) -> float:
    """Xavier; v, o, up and down times the stack's gain."""
    scaled = matrix.where is not None and matrix.role in ("v", "o", "up", "down")
    return xavier_std(matrix) * (magneto_gain(matrix.where) if scaled and matrix.where else 1.0)


register_init(
    Init(
        name="magneto",
        equation="Xavier, v, o, up and down times √ln(2L);  with both stacks √(ln(3M) ln(2N)/3) and √ln(3M), "
        "cross-attention 1",
        source="Wang et al. 2022 (Magneto), arXiv 2210.06423",
        std=magneto_std,
        embedding=unit_embedding,
    )
)
