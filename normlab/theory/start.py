"""The covariance that the first block receives (equations E1, E2 and E4 of ``docs/theory.md``)."""

import numpy as np

from normlab.models.embedding import sinusoids
from normlab.spec import ModelSpec
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.where import StackName


def embedded(spec: ModelSpec, stack: StackName, geometry: Geometry) -> tuple[Array, Array | float]:
    """Return the covariance of the embedding's sum, and the product of two tokens' means over features (E4).

    Equal tokens share their vector, equal positions theirs.
    """
    scale = spec.embedding_scale(stack)
    covariance = (scale.std * scale.multiplier) ** 2 * geometry.equal_inputs
    if spec.position == "learned":
        return covariance + scale.std**2 * geometry.equal_positions, 0.0
    if spec.position != "sinusoidal":
        return covariance, 0.0
    waves = sinusoids(geometry.tokens, spec.width).numpy()
    level = waves.mean(axis=1)
    return covariance + _of_positions(waves @ waves.T / spec.width, geometry), _of_positions(
        np.multiply.outer(level, level), geometry
    )


def _of_positions(pairs: Array, geometry: Geometry) -> Array:
    """Give each entry its pair of positions; with three averages, the mean over the pairs of each kind."""
    if geometry.rows is not None:
        return np.broadcast_to(pairs, geometry.equal_inputs.shape)
    own, tokens = float(np.trace(pairs)), geometry.tokens
    off = (float(pairs.sum()) - own) / max(tokens * (tokens - 1), 1)
    return np.array([own / tokens, off, pairs.mean()])
