"""Random orthogonal matrices."""

import math

from normlab.inits.init import Init, Matrix, register_init
from normlab.inits.xavier import unit_embedding


def orthogonal_std(matrix: Matrix, *, gain: float = 1.0) -> float:
    """gain/√max(fan_in, fan_out): the root mean square of a matrix whose singular values are all the gain."""
    return gain / math.sqrt(max(matrix.fan_in, matrix.fan_out))


register_init(
    Init(
        name="orthogonal",
        equation="W uniform among matrices with all singular values equal to a gain (1);  E ~ N(0, 1)",
        source="Saxe et al. 2014, arXiv 1312.6120",
        std=orthogonal_std,
        embedding=unit_embedding,
        law="orthogonal",
    )
)
