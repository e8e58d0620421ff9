"""GPT-2's initialisation with the output projections scaled by depth."""

import math

from normlab.inits.gpt2 import gpt2_embedding, gpt2_std
from normlab.inits.init import Init, Matrix, register_init


def gpt2_scaled_std(matrix: Matrix) -> float:
    """0.02, and 0.02/√S for o and down, with S the number of sub-layers of the stack (2L in a decoder)."""
    if matrix.where is None or matrix.role not in ("o", "down"):
        return gpt2_std(matrix)
    return gpt2_std(matrix) / math.sqrt(matrix.where.depth * matrix.where.sublayers)


register_init(
    Init(
        name="gpt2-scaled",
        equation="W, E ~ N(0, 0.02²);  W_o, W_down ~ N(0, 0.02²/(2L))",
        source="Radford et al. 2019 (GPT-2)",
        std=gpt2_scaled_std,
        embedding=gpt2_embedding,
    )
)
