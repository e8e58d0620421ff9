"""Gaussian matrices scaled by their fan-in, with a gain for each role."""

import math

from normlab.inits.init import Init, Matrix, register_init
from normlab.inits.xavier import unit_embedding


def fan_in_std(
    matrix: Matrix,
    *,
    q: float = 1.0,
    k: float = 1.0,
    v: float = 1.0,
    o: float = 1.0,
    up: float = 1.0,
    gate: float = 1.0,
    down: float = 1.0,
    head: float = 1.0,
) -> float:
    """gain/√fan_in, the gain of the matrix's role."""
    gains = {"q": q, "k": k, "v": v, "o": o, "up": up, "gate": gate, "down": down, "head": head}
    return gains.get(matrix.role, 1.0) / math.sqrt(matrix.fan_in)


register_init(
    Init(
        name="fan-in",
        equation="W ~ N(0, gain²/fan_in), a gain for each of q, k, v, o, up, gate, down, head;  E ~ N(0, 1)",
        source="LeCun et al. 1998; gain √2 after a ReLU: He et al. 2015, arXiv 1502.01852",
        std=fan_in_std,
        embedding=unit_embedding,
    )
)
