"""The covariance that the first block receives (equations E1 and E2 of ``docs/theory.md``)."""

import numpy as np

from normlab.spec import ModelSpec
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.where import StackName

_BASE = 10_000.0


def embedded(spec: ModelSpec, stack: StackName, geometry: Geometry) -> Array:
    """Return the covariance of the embedding's sum: equal tokens share their vector, equal positions theirs."""
    scale = spec.embedding_scale(stack)
    covariance = (scale.std * scale.multiplier) ** 2 * geometry.equal_inputs
    if spec.position == "learned":
        covariance = covariance + scale.std**2 * geometry.equal_positions
    if spec.position == "sinusoidal":
        covariance = covariance + _waves(spec, geometry)
    return covariance


def _waves(spec: ModelSpec, geometry: Geometry) -> Array:
    """⟨P_i, P_j⟩/d of sinusoidal positions: the mean of cos(ω (i − j)) over the frequencies (E2)."""
    frequency = _BASE ** (-2.0 * (np.arange(spec.width) // 2) / spec.width)
    apart = np.cos(np.arange(geometry.tokens)[:, None] * frequency).mean(axis=1) / 2
    # A sine and a cosine of the same frequency: an odd feature at the end counts half, which 1/d covers.
    distance = np.abs(np.subtract.outer(np.arange(geometry.tokens), np.arange(geometry.tokens)))
    pairs: Array = apart[distance]
    if geometry.rows is not None:
        return np.broadcast_to(pairs, geometry.equal_inputs.shape)
    tokens = geometry.tokens
    off = (pairs.sum() - np.trace(pairs)) / max(tokens * (tokens - 1), 1)
    return np.array([apart[0], off, pairs.mean()])
