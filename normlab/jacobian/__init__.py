"""Jacobians of functions and of parts of models: dense, estimated, their singular values, and closed forms of norms.

A function is anything that maps one tensor to one tensor; :func:`parts` makes functions of the blocks, sub-layers and
norms of a model, the zoo's or anybody's.
"""

# Importing the families registers their closed forms.
from normlab.jacobian import closed_batch, closed_foreign, closed_pointwise, closed_statistics
from normlab.jacobian.arithmetic import JacobianWarning
from normlab.jacobian.chaining import Chain, chain
from normlab.jacobian.closed_form import NormJacobian, closed_form, grouped
from normlab.jacobian.closed_pointwise import pointwise
from normlab.jacobian.closed_product import NormProduct
from normlab.jacobian.closed_statistics import by_token, statistic
from normlab.jacobian.decomposition import Decomposition, decomposition
from normlab.jacobian.dense import dense, formed
from normlab.jacobian.estimate import Estimate
from normlab.jacobian.evaluating import JacobianError, NonFiniteJacobian, UnknownPart
from normlab.jacobian.extremal import spectral_norm, spectrum, spectrum_of
from normlab.jacobian.hutchinson import frobenius, frobenius_of
from normlab.jacobian.linear_map import LinearMap, linearised
from normlab.jacobian.lyapunov import LocalExponent, LyapunovSpectrum, local_exponents, lyapunov_spectrum
from normlab.jacobian.measuring import MEASURED, Examination, examine, measure
from normlab.jacobian.model_parts import Parts, parts
from normlab.jacobian.part import Part, TokenPart
from normlab.jacobian.propagation import apjn, apjns
from normlab.jacobian.singular_values import Spectrum

__all__ = [
    # a function's Jacobian
    "dense",
    "frobenius",
    "spectral_norm",
    "spectrum",
    "Estimate",
    "Spectrum",
    # parts of a model, as functions
    "parts",
    "Parts",
    "Part",
    "TokenPart",
    "decomposition",
    "Decomposition",
    # across depth, block by block
    "chain",
    "Chain",
    "apjn",
    "apjns",
    "local_exponents",
    "LocalExponent",
    "lyapunov_spectrum",
    "LyapunovSpectrum",
    # norms in closed form, and what a form of your own is made with
    "closed_form",
    "NormJacobian",
    "NormProduct",
    "by_token",
    "grouped",
    "pointwise",
    "statistic",
    # a linear map that is applied and never formed
    "linearised",
    "LinearMap",
    "formed",
    "frobenius_of",
    "spectrum_of",
    # as a table
    "measure",
    "examine",
    "Examination",
    "MEASURED",
    # errors
    "JacobianError",
    "NonFiniteJacobian",
    "UnknownPart",
    "JacobianWarning",
    # one module a family of closed forms
    "closed_batch",
    "closed_foreign",
    "closed_pointwise",
    "closed_statistics",
]
