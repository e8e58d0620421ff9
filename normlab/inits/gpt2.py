"""GPT-2's initialisation: 0.02 throughout."""

from normlab.inits.init import EmbeddingScale, Init, Matrix, register_init
from normlab.where import Where

STD = 0.02


def gpt2_std(matrix: Matrix) -> float:
    """0.02 for every matrix, whatever its size."""
    return STD


def gpt2_embedding(width: int, tied: bool, where: Where) -> EmbeddingScale:
    """0.02, tied or not."""
    return EmbeddingScale(std=STD)


register_init(
    Init(
        name="gpt2",
        equation="W, E ~ N(0, 0.02²)",
        source="Radford et al. 2018 (GPT)",
        std=gpt2_std,
        embedding=gpt2_embedding,
    )
)
