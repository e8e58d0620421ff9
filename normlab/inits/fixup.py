"""Fixup's rule: all but the last matrix of each branch scaled by depth, the last one 0."""

from normlab.inits.init import Init, Matrix, register_init
from normlab.inits.xavier import unit_embedding, xavier_std


def fixup_std(matrix: Matrix) -> float:
    """Xavier times S^(−1/(2m−2)) in a branch of m matrices, S the number of branches; 0 for the last matrix.

    Attention has m = 4 (−1/6 for q, k and v), the MLP m = 2 (−1/2); a gate is left as it is, so that a gated
    MLP's product has the same scale. The rule's zero head is left out: with it every gradient but the head's
    own would be exactly 0.
    """
    if matrix.where is None or matrix.role == "gate":
        return xavier_std(matrix)
    if matrix.role in ("o", "down"):
        return 0.0
    power = -1 / 2 if matrix.role == "up" else -1 / 6
    return xavier_std(matrix) * float((matrix.where.depth * matrix.where.sublayers) ** power)


register_init(
    Init(
        name="fixup",
        equation="Xavier, q, k and v times S^(−1/6), up times S^(−1/2), o and down 0, S the number of branches",
        source="Zhang et al. 2019, arXiv 1901.09321",
        std=fixup_std,
        embedding=unit_embedding,
    )
)
