"""Norms: one file each. Importing this package registers them all."""

from normlab.norms import identity, layernorm, rmsnorm
from normlab.norms.norm import NORMS, Norm, register_norm

__all__ = ["NORMS", "Norm", "identity", "layernorm", "register_norm", "rmsnorm"]
