"""Norms: one file each. Importing this package registers them all."""

from normlab.norms import (
    batchnorm,
    derf,
    dyt,
    groupnorm,
    identity,
    l2norm,
    layernorm,
    operators,
    powernorm,
    rmsnorm,
    scalenorm,
)
from normlab.norms.backend import kernels_info
from normlab.norms.fused import add_norm
from normlab.norms.masking import padding
from normlab.norms.norm import NORMS, PROPERTIES, Norm, register_norm
from normlab.norms.running import frozen_statistics

__all__ = [
    "NORMS",
    "PROPERTIES",
    "Norm",
    "register_norm",
    # two in one, and by which implementation
    "add_norm",
    "kernels_info",
    "operators",
    # what norms with batch statistics are told
    "frozen_statistics",
    "padding",
    # one module a norm
    "batchnorm",
    "derf",
    "dyt",
    "groupnorm",
    "identity",
    "l2norm",
    "layernorm",
    "powernorm",
    "rmsnorm",
    "scalenorm",
]
