"""SmallInit: what Xavier gives a matrix with d inputs and 4d outputs, for every matrix."""

import math

from normlab.inits.init import Init, Matrix, register_init
from normlab.inits.xavier import unit_embedding


def small_init_std(matrix: Matrix) -> float:
    """√(2/(5d)), whatever the matrix's own sizes."""
    return math.sqrt(2 / (5 * (matrix.fan_in if matrix.where is None else matrix.where.width)))


register_init(
    Init(
        name="small-init",
        equation="W ~ N(0, 2/(5d));  E ~ N(0, 1)",
        source="Nguyen and Salazar 2019, arXiv 1910.05895",
        std=small_init_std,
        embedding=unit_embedding,
    )
)
