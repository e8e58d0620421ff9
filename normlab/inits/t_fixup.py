"""T-Fixup: Xavier scaled down so that a transformer trains without norms and without warm-up."""

from normlab.inits.init import EmbeddingScale, Init, Matrix, register_init
from normlab.inits.xavier import xavier_std
from normlab.where import Where


def t_fixup_factor(where: Where) -> float:
    """0.67 N^−¼ for blocks of self-attention and MLP, (9M)^−¼ for those with cross-attention.

    The constants were derived for the encoder and the decoder of a translation model; a decoder without
    cross-attention has an encoder's sub-layers, and so takes its constant.
    """
    return float((9 * where.depth) ** -0.25 if where.sublayers == 3 else 0.67 * where.depth**-0.25)


def t_fixup_std(matrix: Matrix) -> float:
    """Xavier; v, o, up and down times the stack's factor."""
    scaled = matrix.where is not None and matrix.role in ("v", "o", "up", "down")
    return xavier_std(matrix) * (t_fixup_factor(matrix.where) if scaled and matrix.where else 1.0)


def t_fixup_embedding(width: int, tied: bool, where: Where) -> EmbeddingScale:
    """N(0, 1/d) times (9N)^−¼, and times √d at the input."""
    return EmbeddingScale(std=float(width**-0.5 * (9 * where.depth) ** -0.25), multiplier=width**0.5)


register_init(
    Init(
        name="t-fixup",
        equation="Xavier, v, o, up and down times 0.67 N^−¼ (decoder with cross-attention: (9M)^−¼);  "
        "E ~ (9N)^−¼ N(0, 1/d) times √d at the input",
        source="Huang et al. 2020, ICML",
        std=t_fixup_std,
        embedding=t_fixup_embedding,
    )
)
