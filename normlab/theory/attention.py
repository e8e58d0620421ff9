"""Averages over queries and keys of attention weights, for pairs of positions (A1 to A7 of ``docs/theory.md``).

With logits of covariance Q_ij K_st between (i, s) and (j, t), the average of A_is A_jt is taken as

    W^{ij}_{st} = w_s w_t exp(β_ij Q_ij K_st) / Z_ij   for positions s and t that i and j may see,

a ratio of averages whose β_ij makes it exact where all positions are alike. Its sums over s, t (forward) and over i, j
(backward) are prefix and suffix sums of a few powers of K_st, because exp(β_ij Q_ij K_st) is a short series in
K_st − centre whose coefficients depend on i, j alone.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import Chebyshev, Polynomial

from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.quenched import LARGEST, read, tables
from normlab.theory.reasons import NoTheory

#: What is left out of the series, relative to its sum.
_TOLERANCE = 1e-5
#: Exponents up to which coefficients of Chebyshev's polynomials do not cancel.
_NARROW = 3.0
#: Exponents whose series would need too many terms.
_REACH = 20.0


@dataclass(frozen=True, eq=False)
class Weights:
    """The averaged products of attention weights of pairs of positions.

    Attributes:
        causal: whether a position sees only itself and earlier ones.
        terms: coefficients of a polynomial that stands for exp.
        weight: w_s w_t, for each (s, t).
        reach: (K_st − centre)/half, from −1 to 1, for each (s, t).
        grown: β_ij Q_ij half, for each (i, j).
        share: exp(β_ij Q_ij centre)/Z_ij, for each (i, j).
        spread: how many times as large as with uniform attention a centred product is, for each (i, j).
    """

    causal: bool
    terms: tuple[float, ...]
    weight: Array
    reach: Array
    grown: Array
    share: Array
    spread: Array | float = 1.0

    def forward(self, entries: Array) -> Array:
        """Return Σ_st W^{ij}_st entries_st for each (i, j) (A1)."""
        return self.share * _series(1.0, self.grown, self.weight * entries, self.reach, self.terms, self.causal)

    def backward(self, entries: Array) -> Array:
        """Return Σ_ij W^{ij}_st entries_ij for each (s, t) (A4)."""
        weight, reach, sent, grown = map(_reversed, (self.weight, self.reach, self.share * entries, self.grown))
        return _reversed(_series(weight, reach, sent, grown, self.terms, self.causal))

    def to_queries(self, values: Array, keys: Array) -> Array:
        """Return Σ_st E[A_is A_jt] V°_st K_st, where V° is V less its averages over what i and j see (A5)."""
        seen_j = self._first(self._second(keys) * self._second(values))
        seen_i = self._second(self._first(keys) * self._first(values))
        both = self._both(values) * self._both(keys)
        result: Array = self.spread * (self._both(values * keys) - seen_j - seen_i + both)
        return result

    def to_keys(self, entries: Array, values: Array) -> Array:
        """Return Σ_ij E[A_is A_jt] entries_ij V°_st for each (s, t) (A6)."""
        spread = self.spread * entries
        first, second = _sent_back(spread, -2, self.causal), _sent_back(spread, -1, self.causal)
        seen_j = _sent_back(first * self._second(values), -1, self.causal)
        seen_i = _sent_back(second * self._first(values), -2, self.causal)
        both = _sent_back(_sent_back(spread * self._both(values), -1, self.causal), -2, self.causal)
        result: Array = values * _sent_back(first, -1, self.causal) - seen_j - seen_i + both
        return result

    def _first(self, entries: Array) -> Array:
        return _averaged(entries, -2, self.causal)

    def _second(self, entries: Array) -> Array:
        return _averaged(entries, -1, self.causal)

    def _both(self, entries: Array) -> Array:
        return self._first(self._second(entries))


def softmax_weights(queries: Array, keys: Array, geometry: Geometry, *, causal: bool) -> Weights:
    """Return the weights of softmax attention (A2, A3).

    Args:
        queries: Q.
        keys: K.
        geometry: the pairs.
        causal: whether a position sees only itself and earlier ones.

    Raises:
        NoTheory: the logits are so large that attention saturates.
    """
    damped, spread, crowd = _exact(queries, keys, geometry, causal)
    low, high = float(keys.min()), float(keys.max())
    centre, half = (low + high) / 2, max((high - low) / 2, 1e-12)
    reach = half * float(np.abs(damped).max())
    if not reach <= _REACH:
        raise NoTheory("attention logits are so large that the softmax saturates")
    weight = crowd
    rows, columns = geometry.sides(keys)
    # A longer key spreads its logits wider, which the average of their exponentials feels (A3).
    tilt = geometry.mean_square(damped) / 2
    if float(rows.max() - rows.min()) > 1e-9:
        weight = weight * np.exp(tilt * (rows + columns - 2 * float(rows.max())))
    at, grown = (keys - centre) / half, half * damped
    terms = _exponential(float(np.ceil(64 * reach)) / 64)
    share = 1 / _series(1.0, grown, weight, at, terms, causal)
    return Weights(causal, terms, weight, at, grown, share, spread)


def _exact(queries: Array, keys: Array, geometry: Geometry, causal: bool) -> tuple[Array, Array, Array]:
    """Return β Q, how much larger centred products are than with uniform attention, and the weights of keys (A3, A7).

    Raises:
        NoTheory: the logits vary so much that attention saturates.
    """
    common = _common(keys, geometry)
    apart = max(geometry.mean_square(keys) - common, 1e-12)
    variance = queries * apart
    if not variance.max() <= LARGEST:
        raise NoTheory("attention logits are so large that the softmax saturates")
    typical = max(geometry.mean_square(variance), 1e-9)
    # Positions with equal keys count as one: 1 for a pair of them, 0 for a pair that has only the common part.
    alike = np.expm1(typical * np.minimum((keys - common) / apart, 1.0)) / np.expm1(typical)
    seen = _pairs(geometry.tokens, causal)
    met = np.maximum(_prefix(alike, causal) / seen, 1e-9) + 0 * alike
    fewer = _fewer(met, geometry)
    exact = tables(geometry.tokens)
    grown = np.minimum(read(exact.own, fewer, variance) * fewer, 0.999999 / met)
    exponent = np.log(np.maximum(grown * (1 - met) / np.maximum(1 - grown * met, 1e-9), 1e-9))
    damped = np.where((variance > 0) & (met < 0.9999), exponent / apart, queries)
    spread = np.ones_like(variance)
    alone = geometry.alone
    spread[:alone] = read(exact.centred, fewer[:alone], variance[:alone])
    return damped, spread, _crowd(alike, typical, geometry)


def _fewer(met: Array, geometry: Geometry) -> Array:
    """Return the smaller of how many different keys i and j see."""
    rows, columns = geometry.sides(met)
    return np.clip(1 / np.maximum(rows, columns), 1.0, geometry.tokens) + 0 * met


def _crowd(alike: Array, variance: float, geometry: Geometry) -> Array:
    """Return exp(−x (h_s + h_t)), h the share of positions like s: equal keys compete with each other (A3)."""
    shares = alike.mean(axis=-1)
    crowd: Array = np.exp(-variance * (shares[geometry.rows][:, :, None] + shares[geometry.columns][:, None, :]))
    return crowd


def _common(keys: Array, geometry: Geometry) -> float:
    """Return the covariance of keys that are not equal, or nearly so."""
    different = geometry.own == 0
    if geometry.tokens == 1 and geometry.batch == 1:
        return 0.0
    middle = (geometry.mean_square(keys) + float(keys[different].mean())) / 2
    different &= keys < middle
    return float(keys[different].mean()) if different.any() else 0.0


def uniform_weights(shape: tuple[int, ...], *, causal: bool) -> Weights:
    """Return the weights of attention that averages over the positions it may see."""
    one = np.ones(shape)
    return Weights(causal, (1.0,), one, one, one, 1 / _prefix(one, causal))


def seen_apart(values: Array, keys: Array, geometry: Geometry, *, causal: bool) -> Array:
    """Return √(v_i k_i v_j k_j), v_i and k_i the mean squares of values and keys that i sees, less their own mean.

    Products of different positions' values and keys scatter by this (A11).
    """
    if geometry.rows is None:
        product = max(float((values[0] - values[1]) * (keys[0] - keys[1])), 0.0)
        return np.full(3, product)
    left = np.ones((geometry.alone, geometry.tokens))
    for entries in (values, keys):
        alone = entries[: geometry.alone]
        own = np.diagonal(alone, axis1=-2, axis2=-1)
        place = np.arange(1.0, geometry.tokens + 1)
        mean = own.cumsum(axis=-1) / place if causal else np.broadcast_to(own.mean(axis=-1, keepdims=True), own.shape)
        both = _averaged(_averaged(alone, -1, causal), -2, causal)
        left = left * np.maximum(mean - np.diagonal(both, axis1=-2, axis2=-1), 0.0)
    root = np.sqrt(left)
    product_of: Array = root[geometry.rows][:, :, None] * root[geometry.columns][:, None, :]
    return product_of


@lru_cache(maxsize=8)
def _pairs(tokens: int, causal: bool) -> Array:
    """Return how many pairs (s, t) i and j see."""
    place = np.arange(1.0, tokens + 1) if causal else np.full(tokens, float(tokens))
    product: Array = np.multiply.outer(place, place)
    return product


def _averaged(entries: Array, axis: int, causal: bool) -> Array:
    """Average over the positions that each position sees, along one axis."""
    if not causal:
        return np.broadcast_to(entries.mean(axis=axis, keepdims=True), entries.shape)
    return _cumulated(entries, axis) / _places(entries.shape[-1], axis)


def _sent_back(entries: Array, axis: int, causal: bool) -> Array:
    """Return the transpose of :func:`_averaged`."""
    if not causal:
        return np.broadcast_to(entries.mean(axis=axis, keepdims=True), entries.shape)
    shares = entries / _places(entries.shape[-1], axis)
    later: Array = shares.sum(axis=axis, keepdims=True) - _cumulated(shares, axis) + shares
    return later


def _places(tokens: int, axis: int) -> Array:
    place = np.arange(1.0, tokens + 1)
    return place[:, None] if axis == -2 else place


@lru_cache(maxsize=256)
def _exponential(reach: float) -> tuple[float, ...]:
    """Return the coefficients of a polynomial that is exp within the tolerance between −reach and reach.

    Chebyshev's take two terms fewer than Taylor's; these are kept for a wide range, where the others cancel.
    """
    if reach < _NARROW:
        degree, error = 0, reach
        while error > _TOLERANCE:
            degree += 1
            error *= reach / (2 * degree + 2)
        near = Chebyshev.interpolate(np.exp, degree, domain=[-reach, reach])
        return tuple(near.convert(kind=Polynomial).coef.tolist())
    terms = [1.0]
    while terms[-1] * reach ** (len(terms) - 1) > _TOLERANCE or len(terms) < reach:
        terms.append(terms[-1] / len(terms))
    return tuple(terms)


def _series(
    left: Array | float, factor: Array, right: Array, step: Array, terms: tuple[float, ...], causal: bool
) -> Array:
    """Return Σ_k c_k left · factor^k · S(right · step^k), S the sum over the first positions of both tokens.

    Power by power: all of them at once would be many times as much memory.
    """
    result = np.zeros_like(factor)
    for k, coefficient in enumerate(terms):
        if k:
            right = right * step
            left = left * factor
        # The coefficient goes with what is small in the end, so that no power overflows.
        result += (coefficient * left) * _prefix(right, causal)
    return result


def _prefix(entries: Array, causal: bool) -> Array:
    """Sum over the first positions of both tokens; over all of them where there is no mask."""
    if not causal:
        return np.asarray(entries.sum(axis=(-2, -1), keepdims=True))
    # PyTorch's is three times as fast as NumPy's.
    summed: Array = torch.from_numpy(entries).cumsum(-1).cumsum(-2).numpy()
    return summed


def _cumulated(entries: Array, axis: int) -> Array:
    summed: Array = torch.from_numpy(np.ascontiguousarray(entries)).cumsum(axis).numpy()
    return summed


def _reversed(entries: Array) -> Array:
    return np.ascontiguousarray(entries[..., ::-1, ::-1])
