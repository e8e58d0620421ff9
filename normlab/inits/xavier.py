"""Xavier (Glorot) initialisation, each matrix on its own."""

import math

from normlab.inits.init import EmbeddingScale, Init, Matrix, register_init
from normlab.where import Where


def xavier_std(matrix: Matrix) -> float:
    """√(2/(fan_in + fan_out)); q, k and v are three matrices, not one packed matrix."""
    return math.sqrt(2 / (matrix.fan_in + matrix.fan_out))


def unit_embedding(width: int, tied: bool, where: Where) -> EmbeddingScale:
    """Unit variance in the stream: N(0, 1), or tied to the head N(0, 1/d) times √d at the input."""
    return EmbeddingScale(std=width**-0.5, multiplier=width**0.5) if tied else EmbeddingScale(std=1.0)


register_init(
    Init(
        name="xavier",
        equation="W ~ N(0, 2/(fan_in + fan_out));  E ~ N(0, 1), tied: N(0, 1/d) times √d at the input",
        source="Glorot and Bengio 2010",
        std=xavier_std,
        embedding=unit_embedding,
    )
)
