"""Initialisation recipes: one file each. Importing this package registers them all."""

from normlab.inits import deepnorm, fan_in, fixup, gpt2, gpt2_scaled, magneto, orthogonal, small_init, t_fixup, xavier
from normlab.inits.init import INITS, EmbeddingScale, Init, Matrix, register_init

__all__ = [
    "INITS",
    "EmbeddingScale",
    "Init",
    "Matrix",
    "register_init",
    # one module a recipe
    "deepnorm",
    "fan_in",
    "fixup",
    "gpt2",
    "gpt2_scaled",
    "magneto",
    "orthogonal",
    "small_init",
    "t_fixup",
    "xavier",
]
