"""DeepNorm's initialisation: Xavier with v, o and the MLP's matrices times β."""

from normlab.inits.init import Init, Matrix, register_init
from normlab.inits.xavier import unit_embedding, xavier_std
from normlab.where import Where


def deepnorm_beta(where: Where) -> float:
    """β for N encoder and M decoder blocks.

    One stack of L blocks: (8L)^−¼. Both stacks: 0.87 (N⁴M)^(−1/16) in the encoder, (12M)^−¼ in the decoder.
    """
    encoder, decoder = where.encoder_depth, where.decoder_depth
    if not (encoder and decoder):
        return float((8 * where.depth) ** -0.25)
    return float(0.87 * (encoder**4 * decoder) ** (-1 / 16) if where.stack == "encoder" else (12 * decoder) ** -0.25)


def deepnorm_std(matrix: Matrix) -> float:
    """Xavier; β on each of the two factors v and o, and on each of up and down."""
    # β² on a merged matrix is another model: one step of gradient descent then moves it by another power of L.
    scaled = matrix.where is not None and matrix.role in ("v", "o", "up", "down")
    return xavier_std(matrix) * (deepnorm_beta(matrix.where) if scaled and matrix.where else 1.0)


register_init(
    Init(
        name="deepnorm",
        equation="Xavier, v, o, up and down times β = (8L)^−¼;  with both stacks 0.87 (N⁴M)^(−1/16) and (12M)^−¼",
        source="Wang et al. 2022 (DeepNet), arXiv 2203.00555",
        std=deepnorm_std,
        embedding=unit_embedding,
    )
)
