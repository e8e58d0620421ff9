"""Averages over queries and keys of attention weights, for pairs of positions (A1 to A7 of ``docs/theory.md``).

With logits of covariance Q_ij K_st between (i, s) and (j, t), the average of A_is A_jt is taken as

    W^{ij}_{st} = w_s w_t exp(β_ij Q_ij K_st) / Z_ij   for positions s and t that i and j may see,

a ratio of averages whose β_ij makes it exact where all positions are alike. Its sums over s, t (forward) and over i, j
(backward) are prefix and suffix sums of a few powers of K_st, because exp(β_ij Q_ij K_st) is a short series in
K_st − centre whose coefficients depend on i, j alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from normlab.theory.copies import replace
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.quenched import LARGEST, places, read, tables
from normlab.theory.reasons import NoTheory
from normlab.theory.sums import averaged, backwards, exponential, pairs_seen, prefix, sent_back, series, two_series

#: Exponents whose series would need too many terms.
_REACH = 20.0


class Seen(NamedTuple):
    """A covariance of values or keys, averaged over what the first, the second and both positions see."""

    entries: Array
    first: Array
    second: Array
    both: Array

    def of(self, count: int) -> "Seen":
        """Return that of the first ``count`` pairs of sequences."""
        return Seen(*(entries[:count] for entries in self))


@dataclass(frozen=True, eq=False)
class Weights:
    """The averaged products of attention weights of pairs of positions.

    Attributes:
        causal: whether a position sees only itself and earlier ones.
        terms: coefficients of a polynomial that stands for exp.
        pulls: w_s and w_t, of shapes that multiply to one entry for each (s, t).
        keys: K_st.
        centre: the middle of its range.
        half: half of its range.
        grown: β_ij Q_ij half, for each (i, j).
        share: exp(β_ij Q_ij centre)/Z_ij, for each (i, j).
        spread: how many times as large as with uniform attention a centred product is, for each (i, j).
        alone: how many of the pairs of sequences are one with itself, where they are told apart; they come first.
    """

    causal: bool
    terms: tuple[float, ...]
    pulls: tuple[Array, Array]
    keys: Array
    centre: float
    half: float
    grown: Array
    share: Array
    spread: Array | float = 1.0
    alone: int | None = None

    @property
    def weight(self) -> Array:
        """w_s w_t, for each (s, t)."""
        return self.pulls[0] * self.pulls[1]

    @property
    def reach(self) -> Array:
        """(K_st − centre)/half, from −1 to 1, for each (s, t)."""
        return _reach(self.keys, self.centre, self.half)

    def _of(self, count: int) -> "Weights":
        """Return the weights of the first ``count`` pairs of sequences."""
        names = ("keys", "grown", "share", "spread")
        parts = {name: part[:count] for name in names if isinstance(part := getattr(self, name), np.ndarray)}
        first, second = (pull[:count] for pull in self.pulls)
        return replace(self, pulls=(first, second), **parts)

    def forward(self, entries: Array) -> Array:
        """Return Σ_st W^{ij}_st entries_st for each (i, j) (A1)."""
        summed = series(self.grown, self.weight * entries, self.reach, self.terms, self.causal)
        summed *= self.share
        return summed

    def backward(self, entries: Array) -> Array:
        """Return Σ_ij W^{ij}_st entries_ij for each (s, t) (A4)."""
        return self._split(entries, lambda weights, part, _: weights._back(part))

    def _back(self, entries: Array) -> Array:
        if not self.causal:
            return self.weight * series(self.reach, self.share * entries, self.grown, self.terms, False)
        reach, sent, grown = map(backwards, (self.reach, self.share * entries, self.grown))
        return self.weight * backwards(series(reach, sent, grown, self.terms, True))

    def seen(self, entries: Array) -> Seen:
        """Return averages of V or K over what i, over what j, and over what both see."""
        second = averaged(entries, -1, self.causal)
        return Seen(entries, averaged(entries, -2, self.causal), second, averaged(second, -2, self.causal))

    def to_queries(self, values: Seen, keys: Seen) -> Array:
        """Return Σ_st E[A_is A_jt] V°_st K_st, where V° is V less its averages over what i and j see (A5)."""
        causal = self.causal
        left = averaged(values.entries * keys.entries, -1, causal) - values.second * keys.second
        result = averaged(left, -2, causal) - averaged(values.first * keys.first, -1, causal)
        result += values.both * keys.both
        result *= self.spread
        return result

    def to_keys(self, entries: Array, values: Seen) -> Array:
        """Return Σ_ij E[A_is A_jt] entries_ij V°_st for each (s, t) (A6)."""
        return self._split(entries, lambda weights, part, count: weights._to_keys(part, values.of(count)))

    def _split(self, entries: Array, back: Callable[["Weights", Array, int], Array]) -> Array:
        """Carry gradients back; those that have nothing between two sequences, as Jacobians, without these pairs.

        Args:
            entries: of one or several gradients, of which the first has all pairs.
            back: takes weights, entries, and the number of pairs of sequences that they are for.
        """
        alone, count = self.alone, len(self.keys)
        if entries.ndim == self.keys.ndim or alone is None or alone == count or entries[1:, alone:].any():
            return back(self, entries, count)
        found = np.zeros_like(entries)
        found[0] = back(self, entries[0], count)
        found[1:, :alone] = back(self._of(alone), entries[1:, :alone], alone)
        return found

    def _to_keys(self, entries: Array, values: Seen) -> Array:
        causal, spread = self.causal, self.spread * entries
        first, second = sent_back(spread, -2, causal), sent_back(spread, -1, causal)
        result: Array = values.entries * sent_back(first, -1, causal)
        result -= sent_back(first * values.second, -1, causal)
        spread *= values.both
        result += sent_back(sent_back(spread, -1, causal) - second * values.first, -2, causal)
        return result


def softmax_weights(queries: Array, keys: Array, geometry: Geometry, *, causal: bool) -> tuple[Weights, Array]:
    """Return the weights of softmax attention (A2, A3), and what they make of the keys: Σ_st W^{ij}_st K_st.

    Args:
        queries: Q.
        keys: K.
        geometry: the pairs.
        causal: whether a position sees only itself and earlier ones.

    Raises:
        NoTheory: the logits are so large that attention saturates.
    """
    damped, spread, pull = _exact(queries, keys, geometry, causal)
    low, high = float(keys.min()), float(keys.max())
    centre, half = (low + high) / 2, max((high - low) / 2, 1e-12)
    reach = half * max(float(damped.max()), -float(damped.min()))
    if not reach <= _REACH:
        raise NoTheory("attention logits are so large that the softmax saturates")
    lengths = geometry.diagonal(keys)
    longest = float(lengths.max())
    if longest - float(lengths.min()) > 1e-9:
        # A longer key spreads its logits wider, which the average of their exponentials feels (A3).
        pull = pull * np.exp(geometry.mean_square(damped) / 2 * (lengths - longest))
    damped *= half
    pulls, terms = geometry.spread(pull), exponential(float(np.ceil(64 * reach)) / 64)
    share, mixed = two_series(damped, pulls[0] * pulls[1], _reach(keys, centre, half), terms, causal)
    np.divide(1.0, share, out=share)
    mixed *= share
    mixed *= half
    mixed += centre
    return Weights(causal, terms, pulls, keys, centre, half, damped, share, spread, geometry.alone), mixed


def _reach(keys: Array, centre: float, half: float) -> Array:
    reach: Array = keys - centre
    reach /= half
    return reach


def _exact(queries: Array, keys: Array, geometry: Geometry, causal: bool) -> tuple[Array, Array, Array]:
    """Return β Q, how much larger centred products are than with uniform attention, and the pull of keys (A3, A7).

    Raises:
        NoTheory: the logits vary so much that attention saturates.
    """
    own, square = geometry.diagonal(keys), float(geometry.mean_square(keys))
    common = _common(keys, own, square)
    apart = max(square - common, 1e-12)
    if not queries.max() * apart <= LARGEST:
        raise NoTheory("attention logits are so large that the softmax saturates")
    variance = queries * apart
    typical = max(float(geometry.mean_square(queries)) * apart, 1e-9)
    # Positions with equal keys count as one: 1 for a pair of them, 0 for a pair that has only the common part.
    alike = keys - common
    alike *= typical / apart
    np.expm1(np.minimum(alike, typical, out=alike), out=alike)
    alike /= math.expm1(typical)
    # Equal keys compete with each other: exp(−x h), h the share of positions like s.
    pull = np.exp(alike[: geometry.alone].sum(axis=-1) * (-typical / geometry.tokens))
    met = prefix(alike, causal) / pairs_seen(geometry.tokens, causal)
    met = np.broadcast_to(np.maximum(met, 1e-9, out=met), keys.shape)
    # Of how many different keys i and j see, the smaller number.
    different = np.minimum(np.maximum(1 / geometry.diagonal(met), 1.0), geometry.tokens)
    fewer = np.minimum(*geometry.spread(different))
    exact, at = tables(geometry.tokens), places(fewer, variance, geometry.tokens)
    grown = read(exact.own, at)
    grown *= fewer
    np.minimum(grown, 0.999999 / met, out=grown)
    odds = 1 - grown * met
    np.maximum(odds, 1e-9, out=odds)
    grown *= 1 - met
    np.divide(grown, odds, out=odds)
    damped = np.log(np.maximum(odds, 1e-9, out=odds), out=odds)
    damped /= apart
    np.copyto(damped, queries, where=(variance <= 0) | (met >= 0.9999))
    if geometry.alone == len(keys):
        return damped, read(exact.centred, at), pull
    spread = np.ones_like(variance)
    spread[: geometry.alone] = read(exact.centred, at.first(geometry.alone))
    return damped, spread, pull


def _common(keys: Array, own: Array, square: float) -> float:
    """Return the covariance of keys that are not equal, or nearly so; ``own`` are those of keys with themselves."""
    count = keys.size - own.size
    if not count:
        return 0.0
    mean = (float(keys.sum()) - float(own.sum())) / count
    middle = (square + mean) / 2
    below, own_below = keys < middle, own < middle
    few = int(np.count_nonzero(below)) - int(np.count_nonzero(own_below))
    if few == count:
        return mean
    return float(keys.sum(where=below) - own.sum(where=own_below)) / few if few else 0.0


def uniform_weights(shape: tuple[int, ...], *, causal: bool) -> Weights:
    """Return the weights of attention that averages over the positions it may see."""
    one = np.ones((1, 1, 1))
    seen = np.broadcast_to(1 / pairs_seen(shape[-1], causal), shape)
    return Weights(causal, (1.0,), (one, one), np.broadcast_to(one, shape), 0.0, 1.0, np.broadcast_to(one, shape), seen)


def seen_apart(values: Seen, keys: Seen, geometry: Geometry, *, causal: bool) -> Array:
    """Return √(v_i k_i v_j k_j), v_i and k_i the mean squares of values and keys that i sees, less their own mean.

    Products of different positions' values and keys scatter by this (A11).
    """
    left = _left(values, geometry, causal)
    both = left if keys is values else np.sqrt(left * _left(keys, geometry, causal))
    first, second = geometry.spread(both)
    return first * second


def _left(seen: Seen, geometry: Geometry, causal: bool) -> Array:
    """Return the mean square of what each position sees, less its own mean."""
    own = geometry.diagonal(seen.entries)
    return np.maximum(averaged(own, -1, causal) - geometry.diagonal(seen.both), 0.0)
