"""How much sums of squares of a finite width scatter, and how far geometric means lie below (S1 to S4).

A sum of squares over d features fluctuates by a share of order 1/d, layer after layer; logarithms add up, so that a
deep product is log-normal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from normlab.placements import Wiring
from normlab.theory.geometry import Geometry, Numbers
from normlab.theory.kernels import Array

#: Covariances of ln |x_i|² and ln |x_j|² over seeds; 0 where a norm has just set them.
Log: TypeAlias = Array | float


@dataclass(frozen=True)
class Spread:
    """Of the logarithm of a squared quantity over seeds.

    Attributes:
        variance: of ln G².
        shift: mean of ln G² less the logarithm of the mean-field value.
    """

    variance: Numbers = 0.0
    shift: Numbers = 0.0

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(self.variance + other.variance, self.shift + other.shift)

    @property
    def sd_log(self) -> Numbers:
        """Standard deviation of ln G."""
        return np.sqrt(np.maximum(self.variance, 0.0)) / 2

    def geometric(self, square: Numbers) -> Numbers:
        """Return the geometric mean over seeds of G, given the mean-field value of G²."""
        return np.sqrt(np.maximum(square, 0.0)) * np.exp(self.shift / 2)


def joined(spreads: Iterable[Spread]) -> Spread:
    """Return several spreads as one of arrays."""
    variance, shift = np.array([(one.variance, one.shift) for one in spreads]).T
    return Spread(variance, shift)


def of_start(stream: Array, width: int, geometry: Geometry) -> Log:
    """Return the covariance of the logarithms of the stream at layer 0."""
    return _relative(stream * stream * (2 / width), stream, geometry)


def after_sum(
    log: Log,
    wiring: Wiring,
    skip: Array | None,
    update: Array,
    total: Array,
    excess: float,
    width: int,
    geometry: Geometry,
) -> Log:
    """Return the covariance of the logarithms of a sum, given that of the stream before (S1, S2).

    Args:
        log: of the stream before.
        wiring: the sub-layer's switches.
        skip: covariance of what the update is added to.
        update: of the update.
        total: of the sum.
        excess: e, what the update's own matrices add.
        width: d.
        geometry: the pairs.
    """
    fresh = update * (2 * (1 + excess) / width)
    if skip is not None:
        fresh += skip * (4 / width)
    fresh *= update
    return _carried(log, wiring, skip, total, geometry) + _relative(fresh, total, geometry)


def _carried(log: Log, wiring: Wiring, skip: Array | None, total: Array, geometry: Geometry) -> Log:
    if skip is None or wiring.skip == "normed" or isinstance(log, float):
        return 0.0
    if not (wiring.inner_norm or wiring.output_norm):
        return log
    first, second = (one / both for one, both in zip(geometry.sides(skip), geometry.sides(total), strict=True))
    return log * np.minimum(first * second, 1.0)


def _relative(covariance: Array, total: Array, geometry: Geometry) -> Array:
    rows, columns = geometry.sides(total)
    return covariance / np.maximum(rows * columns, 1e-300)


def of_mean_square(log: Log, covariance: Array, geometry: Geometry) -> Spread:
    """Return the spread of a stream's mean square (S3)."""
    variance = _together(log, covariance, geometry)
    return Spread(variance, -variance / 2)


def through_norm(log: Log, gradient: Array, geometry: Geometry) -> Spread:
    """Return what a norm's 1/|x_i|² adds to a gradient's spread (S4)."""
    if isinstance(log, float):
        return Spread()
    apart = geometry.shared(geometry.singles(log), gradient) / max(geometry.trace(gradient), 1e-300)
    together = _together(log, gradient, geometry)
    return Spread(together, apart - together / 2)


def _together(log: Log, weights: Array, geometry: Geometry) -> float:
    """Average over all pairs of tokens, weighted by their shares of the trace."""
    if isinstance(log, float):
        return 0.0
    return geometry.weighed(log, weights) / max(float(geometry.trace(weights)), 1e-300) ** 2
