"""Jacobians of functions and of parts of models: dense, estimated, and their largest singular values."""

from normlab.jacobian.dense import dense
from normlab.jacobian.estimate import Estimate
from normlab.jacobian.extremal import Spectrum, spectral_norm, spectrum
from normlab.jacobian.hutchinson import frobenius
from normlab.jacobian.linear_map import JacobianError, LinearMap, linearised

__all__ = [
    "Estimate",
    "JacobianError",
    "LinearMap",
    "Spectrum",
    "dense",
    "frobenius",
    "linearised",
    "spectral_norm",
    "spectrum",
]
