"""How much sums of squares of a finite width scatter, and how far geometric means lie below (S1 to S4).

A sum of squares over d features fluctuates by a share of order 1/d, layer after layer; logarithms add up, so that a
deep product is log-normal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from normlab.placements import Wiring
from normlab.theory.elementwise import scaled
from normlab.theory.geometry import Geometry, Numbers
from normlab.theory.kernels import Array

#: Covariances of ln |x_i|² and ln |x_j|² over seeds; 0 where a norm has just set them.
Log: TypeAlias = Array | float
#: What a trace that others are divided by is at least.
LEAST: Final = 1e-300
#: A mean square below which tokens are the same.
_SMALL = 1e-30


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

    def at(self, places: NDArray[np.int64]) -> "Spread":
        """Return those of some sub-layers, of the spread of all."""
        return Spread(self.variance[places], self.shift[places])

    @property
    def sd_log(self) -> Numbers:
        """Standard deviation of ln G."""
        return np.sqrt(np.maximum(self.variance, 0.0)) / 2

    def geometric(self, square: Numbers) -> Numbers:
        """Return the geometric mean over seeds of G, given the mean-field value of G²."""
        return np.sqrt(np.maximum(square, 0.0)) * np.exp(self.shift / 2)


class Adds(NamedTuple):
    """What a sub-layer keeps of the logarithms' covariance, adds to it, and adds to the roughness."""

    kept: Log
    fresh: Log
    rougher: Numbers


class Scatter(NamedTuple):
    """Of a stream on its way forward.

    Attributes:
        log: covariance of the logarithms of the stream's mean squares (S2).
        rough: relative variance of ⟨x_i, x_j⟩ of different tokens (S6).
    """

    log: Numbers
    rough: Numbers

    def after(self, adds: Adds | None) -> "Scatter":
        """Return that of a sum."""
        if adds is None:
            return self
        none = any(isinstance(part, float) and not part for part in (self.log, adds.kept))
        kept = 0.0 if none else scaled(adds.kept, self.log)
        return Scatter(kept + adds.fresh, self.rough + adds.rougher)

    @property
    def normed(self) -> "Scatter":
        """That behind a norm."""
        return Scatter(0.0, self.rough)

    def of(self, places: NDArray[np.int64] | int) -> "Scatter":
        """Return that of some sub-layers, of the scatter of all."""
        return Scatter(self.log[places], np.expand_dims(self.rough[places], -1))


def joined(spreads: Iterable[tuple[Spread, int]]) -> Spread:
    """Return several spreads, each that of a number of layers, as one of arrays."""
    parts = [(np.broadcast_to(one.variance, count), np.broadcast_to(one.shift, count)) for one, count in spreads]
    variance, shift = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Spread(variance, shift)


def rougher(skip: Array | None, update: Array, width: int, hidden: float, geometry: Geometry) -> Numbers:
    """Return what a sum adds to the relative variance of ⟨x_i, x_j⟩ of different tokens (S6).

    Args:
        skip: covariance of what the update is added to.
        update: of the update.
        width: d.
        hidden: d over the inputs of the update's last matrix.
        geometry: the pairs.
    """
    kept, fresh = (0.0 if one is None else np.maximum(geometry.apart(one), 0.0) for one in (skip, update))
    total = kept + fresh
    # What was there is carried on by the skip and by the branch alike.
    more = (2 * kept * fresh + (1 + hidden) * fresh**2) / (width * np.maximum(total, _SMALL) ** 2)
    return np.where(total < _SMALL, 0.0, more)


def of_start(stream: Array, width: int, geometry: Geometry) -> Log:
    """Return the covariance of the logarithms of the stream at layer 0."""
    return _relative(stream * stream * (2 / width), stream, geometry)


def at_sum(
    wiring: Wiring, skip: Array | None, update: Array, total: Array, excess: float, width: int, geometry: Geometry
) -> tuple[Log, Array]:
    """Return what is kept of the logarithms' covariance of the stream before a sum, and what joins it (S1, S2).

    Args:
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
    return _kept(wiring, skip, total, geometry), _relative(fresh, total, geometry)


def _kept(wiring: Wiring, skip: Array | None, total: Array, geometry: Geometry) -> Log:
    if skip is None or wiring.skip == "normed":
        return 0.0
    if not (wiring.inner_norm or wiring.output_norm):
        return 1.0
    first, second = (one / both for one, both in zip(geometry.sides(skip), geometry.sides(total), strict=True))
    return np.minimum(first * second, 1.0)


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
    apart = geometry.shared(geometry.singles(log), gradient) / np.maximum(geometry.trace(gradient), LEAST)
    together = _together(log, gradient, geometry)
    return Spread(together, apart - together / 2)


def _together(log: Log, weights: Array, geometry: Geometry) -> Numbers:
    """Average over all pairs of tokens, weighted by their shares of the trace."""
    if isinstance(log, float):
        return 0.0
    trace = np.maximum(geometry.trace(weights), LEAST)
    # Its square may be below the smallest number.
    return geometry.weighed(log, weights) / trace / trace
