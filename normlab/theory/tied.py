"""A head that is the embedding knows the token that a position reads (equations H5 to H9 of ``docs/theory.md``)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import RectBivariateSpline

from normlab.spec import ModelSpec
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.quenched import marked, meeting
from normlab.theory.state import Held

#: Nodes at which moments are computed, along the mean of the own logit and along the root of the variance.
_NODES = (13, 9)


@dataclass(frozen=True, eq=False)
class Tied:
    """The errors δ = p − y of a head that is the embedding, and what they share with the token that is read.

    Of each pair of tokens i and j, which read a_i and a_j, the first entry is that of i, the second that of j.

    Attributes:
        geometry: the pairs.
        width: d.
        out: covariance of what the head sees.
        shift: c, the mean of a position's logit of its own token.
        down: m α, what the embedding's gradient is multiplied by on the skip's way back to it.
        own: E δ_i at a_i and E δ_j at a_j.
        other: E δ_i at a_j and E δ_j at a_i.
        same: E of δ_i δ_j at the token that both read; of no meaning where they read different ones.
        products: E Σ_v δ_iv δ_jv.
        loss: in nats.
    """

    geometry: Geometry
    width: int
    out: Array
    shift: tuple[Array, Array]
    down: tuple[Array, Array]
    own: tuple[Array, Array]
    other: tuple[Array, Array]
    same: Array
    products: Array
    loss: float

    def lost(self) -> Array:
        """What a norm takes out of the gradient that goes along its token, times N² (H7)."""
        one, two = self._unit
        own, other, mean = self.own, self.other, self._mean
        rows, columns = self.geometry.sides(self.out)
        unit = self.out / np.sqrt(rows * columns)
        along = one**2 * mean(own[0], other[1]) + two**2 * mean(own[1], other[0])
        return (along - unit * one * two * mean(own[0], own[1])) / self.width

    def gain(self) -> Array:
        """What a gradient that goes along its token adds to that of the norm's gain, times N² (H8)."""
        one, two = self._unit
        found: Array = one * two * (self._mean(*self.own) + self._mean(*self.other)) / self.width
        return found

    def crossed(self, *, normed: bool) -> Array:
        """Covariance of the table's two gradients, as head and as embedding, in both orders, times N² (H9).

        Args:
            normed: whether a norm stands between the head and the skip.
        """
        (one, two), (first, second), mean = self.shift, self.down, self._mean
        rows, columns = self.geometry.sides(self.out)
        met = mean(*self.other)
        there, back = second * one * met, first * two * met
        if normed:
            there = there - second * two * (self.out / columns) * mean(self.other[0], self.own[1])
            back = back - first * one * (self.out / rows) * mean(self.other[1], self.own[0])
        return there + back

    @property
    def _unit(self) -> tuple[Array, Array]:
        """The mean of ⟨ĥ, e⟩ for an output of unit mean square."""
        rows, columns = self.geometry.sides(self.out)
        return self.shift[0] / np.sqrt(rows), self.shift[1] / np.sqrt(columns)

    def _mean(self, one: Array, other: Array) -> Array:
        """E of a product of two errors: at one token if i and j read the same, otherwise as independent."""
        equal = self.geometry.equal_inputs
        return equal * self.same + (1 - equal) * one * other


def tied(spec: ModelSpec, out: Array, held: Held, geometry: Geometry) -> Tied:
    """Return the errors of a tied head (H5, H6).

    Args:
        spec: the model.
        out: covariance of what the head sees.
        held: how much of the embedding that holds.
        geometry: the pairs.
    """
    scale = spec.embedding_scale(list(spec.stacks)[-1])
    power = spec.width * scale.std**2
    logits, zero = power * out, 0 * out
    down = (scale.multiplier * held.first + zero, scale.multiplier * held.second + zero)
    one, two = power * down[0], power * down[1]
    rows, columns = (side + zero for side in geometry.sides(logits))
    middle = np.sqrt(np.maximum(one * two, 0.0))
    read = _moments(spec.vocab, spec.width, middle, logits)
    equal, (left, right) = geometry.equal_inputs, geometry.foretold
    p, r = read("own", one, rows), read("own", two, columns)
    p_rest, r_rest = (1 - p) / (spec.vocab - 1), (1 - r) / (spec.vocab - 1)
    square = read("square", middle, logits)
    apart = (1 - p) * (1 - r) * meeting(spec.vocab, logits, np.sqrt(rows * columns))
    apart = apart + p * r_rest * np.exp(logits * (1 - p)) + r * p_rest * np.exp(logits * (1 - r))
    expected = equal * (square + read("others", middle, logits)) + (1 - equal) * apart
    hit, other_hit = geometry.sides(left + zero)
    at_targets = left * p + (1 - left) * p_rest + right * r + (1 - right) * r_rest
    missed = geometry.mean_square(read("log", middle, logits) - one * left)
    return Tied(
        geometry=geometry,
        width=spec.width,
        out=out,
        shift=(one, two),
        down=down,
        own=(p - hit, r - other_hit),
        other=(equal * p + (1 - equal) * p_rest - right, equal * r + (1 - equal) * r_rest - left),
        same=square - p * left - r * right + left * right,
        products=expected - at_targets + geometry.equal_targets,
        loss=float(missed),
    )


def _moments(vocab: int, width: int, mean: Array, variance: Array) -> Callable[[str, Array, Array], Array]:
    """Tabulate moments of the softmax over the means and variances that occur; return a function that reads them."""
    low, high = float(mean.min()), max(float(mean.max()), float(mean.min()) + 1e-3)
    means = np.linspace(low, high, _NODES[0])
    roots = np.linspace(0.0, float(np.sqrt(max(variance.max(), 1e-6))), _NODES[1])
    found = [[marked(vocab, float(c), float(c) ** 2 / width, float(root) ** 2) for root in roots] for c in means]

    def read(name: str, at: Array, spread: Array) -> Array:
        values = np.array([[getattr(one, name) for one in row] for row in found])
        logs = name != "log"
        spline = RectBivariateSpline(means, roots, np.log(values) if logs else values)
        result: Array = spline.ev(np.clip(at, low, high), np.sqrt(np.maximum(spread, 0.0)))
        return np.exp(result) if logs else result

    return read
