"""What a pointwise function does to the covariance of two Gaussian features.

For (a, b) jointly normal with variances v_a, v_b and correlation ρ, a function φ gives two kernels: E[φ(a) φ(b)]
forward and E[φ′(a) φ′(b)] backward (equations K1 to K4 of ``docs/theory.md``).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Array = NDArray[np.float64]

#: Hermite coefficients of a function; what is left of its mean square is put into one higher power.
_TERMS = 512
_GRID = np.linspace(-10.0, 10.0, 8000)
#: Correlations at which a kernel is tabulated: evenly spaced angles, in which a kernel is smooth up to ρ = 1.
_ANGLES = np.linspace(0.0, np.pi, 1025)
#: Spacing of tabulated variances, as a logarithm.
_STEP = 0.1
#: Variances that are taken as one, in steps.
_SAME = 0.05


@dataclass(frozen=True)
class Shape:
    """The kernels of φ at one variance, over :data:`_ANGLES`.

    Attributes:
        value: E[φ(a) φ(b)]/v.
        slope: E[φ′(a) φ′(b)].
        mean: E[φ(a)]/√v.
    """

    value: Array
    slope: Array
    mean: float

    @cached_property
    def both(self) -> Array:
        """The values and the slopes, one above the other."""
        return np.stack([self.value, self.slope])


@dataclass(frozen=True)
class Moments:
    """The kernels of φ for a covariance.

    Attributes:
        value: E[φ(a) φ(b)], of the covariance's shape.
        slope: E[φ′(a) φ′(b)], likewise.
        mean: E[φ(a)] E[φ(b)], of the variance's shape.
    """

    value: Array
    slope: Array
    mean: Array


@dataclass(frozen=True)
class Kernel:
    """The two kernels of a pointwise function φ.

    Args:
        function: φ, on tensors.
    """

    function: Callable[[Tensor], Tensor]
    _shapes: dict[int, Shape] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, covariance: Array, variance: Array) -> Moments:
        """Return the kernels.

        Args:
            covariance: of pairs of features.
            variance: √(v_a v_b), of a shape that fits: two variances that differ a little act as their geometric
                mean (K3).
        """
        positive = np.maximum(variance, 1e-300)
        if self.function is F.relu:
            return _relu(covariance, positive)
        step = _angle(covariance, positive)
        step *= (len(_ANGLES) - 1) / np.pi
        if positive.size == 1:
            low = high = math.log(positive.item()) / _STEP
        else:
            low, high = (math.log(end) / _STEP for end in (positive.min(), positive.max()))
        if step.ndim == 2:
            # Three averages of several layers, whose variances may be far apart.
            place = np.log(positive) / _STEP
            below = np.floor(place).astype(np.int64)
            needed = np.unique([below, below + 1])
            nodes = [self._node(index) for index in needed.tolist()]
            return _bilinear(nodes, np.searchsorted(needed, below), place - below, step, positive)
        if high - low > _SAME:
            place = np.log(positive) / _STEP - math.floor(low)
            nodes = self._nodes(low, high)
            row = np.minimum(place.astype(np.int64), len(nodes) - 2)
            return _bilinear(nodes, row, place - row, step, positive)
        first, second = self._nodes(low, low)
        return _linear(first, second, low - math.floor(low), step, positive)

    def at(self, variance: float) -> Shape:
        """Return the kernels at one variance, over all angles, the values divided by the variance."""
        return _shape(self.function, variance)

    def _nodes(self, low: float, high: float) -> list[Shape]:
        return [self._node(index) for index in range(math.floor(low), math.floor(high) + 2)]

    def _node(self, index: int) -> Shape:
        if index not in self._shapes:
            self._shapes[index] = _shape(self.function, float(np.exp(index * _STEP)))
        return self._shapes[index]


@lru_cache(maxsize=64)
def kernel(function: Callable[[Tensor], Tensor]) -> Kernel:
    """Return the kernels of ``function``; its tables are kept."""
    return Kernel(function)


def _shape(function: Callable[[Tensor], Tensor], variance: float) -> Shape:
    """Mehler's formula: E[φ(a) φ(b)] = Σ_k c_k² ρ^k with c_k the Hermite coefficients of φ(√v x) (K1, K2)."""
    value, slope = _on_grid(function, np.sqrt(variance))
    basis, weight = _hermite()
    coefficients = basis @ (weight * value)
    order = np.arange(1, _TERMS)
    slopes = coefficients[1:] ** 2 * order / variance
    return Shape(
        value=_series(coefficients**2, float(weight @ value**2)) / variance,
        slope=_series(slopes, float(weight @ slope**2)),
        mean=float(coefficients[0] / np.sqrt(variance)),
    )


def _on_grid(function: Callable[[Tensor], Tensor], scale: float) -> tuple[Array, Array]:
    # A kink is met half-way between two points of the grid, where the midpoint rule loses the least.
    x = torch.tensor(_GRID * scale, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        y = function(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
    return y.detach().numpy(), slope.numpy()


def _series(powers: Array, total: float) -> Array:
    """Sum powers of cos θ; what the first terms leave of the value at θ = 0 goes into a power of twice the order."""
    rest = total - float(powers.sum())
    rho = np.cos(_ANGLES)
    summed: Array = np.polynomial.polynomial.polyval(rho, powers) + rest * rho ** (2 * len(powers))
    return summed


@lru_cache(maxsize=1)
def _hermite() -> tuple[Array, Array]:
    """Return the normalised Hermite polynomials on the grid and the weights of a standard normal average.

    The recursion runs on Hermite functions, which stay bounded: the polynomials overflow.
    """
    x = _GRID
    functions = np.empty((_TERMS, len(x)))
    functions[0] = np.exp(-(x**2) / 4)
    functions[1] = x * functions[0]
    for k in range(1, _TERMS - 1):
        functions[k + 1] = (x * functions[k] - np.sqrt(k) * functions[k - 1]) / np.sqrt(k + 1)
    weight = np.exp(-(x**2) / 2)
    weight /= weight.sum()
    return functions * np.exp(x**2 / 4), weight


def _linear(first: Shape, second: Shape, part: float, step: Array, variance: Array) -> Moments:
    """Interpolate in the angle, in a table of one variance; values are relative to it."""
    column = np.minimum(step.astype(np.int64), len(_ANGLES) - 2)
    across, following = step - column, column + 1
    # Places are within the table: "clip" spares a check.
    if column.size > len(_ANGLES):
        table = first.both * (1 - part)
        table += second.both * part
        left, right = (table.take(at, axis=1, mode="clip") for at in (column, following))
    else:
        ends = np.array((column, following))
        low, high = first.both.take(ends, axis=1, mode="clip"), second.both.take(ends, axis=1, mode="clip")
        low *= 1 - part
        high *= part
        low += high
        left, right = low[:, 0], low[:, 1]
    right -= left
    right *= across
    right += left
    value, slope = right
    value *= variance
    mean = first.mean * (1 - part) + second.mean * part
    return Moments(value, slope, mean**2 * variance)


def _bilinear(nodes: list[Shape], row: NDArray[np.int64], down: Array, step: Array, variance: Array) -> Moments:
    """Interpolate in the angle and in ln v, between nodes ``row`` and ``row + 1``."""
    column = np.minimum(step.astype(np.int64), len(_ANGLES) - 2)
    across = step - column

    def read(table: Array) -> Array:
        top = table[row, column] * (1 - across) + table[row, column + 1] * across
        bottom = table[row + 1, column] * (1 - across) + table[row + 1, column + 1] * across
        result: Array = top * (1 - down) + bottom * down
        return result

    value, slope = (read(np.stack([getattr(node, name) for node in nodes])) for name in ("value", "slope"))
    means = np.array([node.mean for node in nodes])
    mean = means[row] * (1 - down) + means[row + 1] * down
    return Moments(value * variance, slope, mean**2 * variance)


def _angle(covariance: Array, variance: Array) -> Array:
    """Return arccos ρ."""
    rho: Array = covariance / variance
    np.minimum(np.maximum(rho, -1.0, out=rho), 1.0, out=rho)
    return np.arccos(rho, out=rho)


def _relu(covariance: Array, variance: Array) -> Moments:
    """The closed form for max(z, 0) (K4)."""
    slope = np.pi - _angle(covariance, variance)
    rho = np.cos(np.pi - slope)
    value = (np.sin(slope) + rho * slope) * (variance / (2 * np.pi))
    slope /= 2 * np.pi
    return Moments(value, slope, variance / (2 * np.pi))
