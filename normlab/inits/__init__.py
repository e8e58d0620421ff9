"""Initialisation recipes: one file each. Importing this package registers them all."""

from normlab.inits import gpt2, gpt2_scaled, xavier
from normlab.inits.init import INITS, EmbeddingScale, Init, Matrix, register_init

__all__ = ["INITS", "EmbeddingScale", "Init", "Matrix", "gpt2", "gpt2_scaled", "register_init", "xavier"]
