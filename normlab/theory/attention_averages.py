"""Attention over three averages in place of pairs of positions (A8 to A10 of ``docs/theory.md``).

Tokens of a sequence are taken as exchangeable, so that all that a mask does is in two numbers: how much of a pair's
weight falls on a token with itself, for a position with itself and for two positions.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from normlab.theory.geometry import Geometry, Numbers
from normlab.theory.kernels import Array
from normlab.theory.quenched import LARGEST, at, tables
from normlab.theory.reasons import NoTheory


@dataclass(frozen=True, eq=False)
class AverageWeights:
    """The share of Σ_st W^{ij}_st that falls on s = t: numbers, or arrays of those of several layers.

    Attributes:
        tokens: positions of a sequence.
        own: the share for i = j, averaged over i.
        pair: the share for i ≠ j, averaged over pairs.
        own_centred: the share for i = j of what centring leaves of δ_st.
        pair_centred: the same for i ≠ j.
    """

    tokens: int
    own: Numbers
    pair: Numbers
    own_centred: Numbers
    pair_centred: Numbers

    def forward(self, entries: Array) -> Array:
        """Return Σ_st W^{ij}_st entries_st."""
        own, pair, cross = three(entries)
        return _stacked(pair + (own - pair) * self.own, pair + (own - pair) * self.pair, cross)

    def backward(self, entries: Array) -> Array:
        """Return Σ_ij W^{ij}_st entries_ij; the sum over all pairs of a sequence stays what it was."""
        own, pair, cross = three(entries)
        others = self.tokens - 1
        back = self.own * own + others * self.pair * pair
        return _stacked(back, (own + others * pair - back) / others if others else 0 * own, cross)

    def seen(self, entries: Array) -> Array:
        """Return what :meth:`to_queries` and :meth:`to_keys` read of values or keys."""
        return entries

    def to_queries(self, values: Array, keys: Array) -> Array:
        """Return Σ_st W^{ij}_st V°_st K_st."""
        spread = _apart(values) * _apart(keys)
        return _stacked(spread * self.own_centred, spread * self.pair_centred, 0.0 * spread)

    def to_keys(self, entries: Array, values: Array) -> Array:
        """Return Σ_ij W^{ij}_st entries_ij V°_st; keys' gradients of a sequence sum to 0."""
        others = self.tokens - 1
        one, pair, _ = three(entries)
        own = _apart(values) * (self.own_centred * one + others * self.pair_centred * pair)
        return _stacked(own, -own / others if others else 0 * own, 0 * own)


def three(entries: Array) -> Numbers:
    """Return the three averages: numbers, or arrays where there are axes before the last."""
    return entries.tolist() if entries.ndim == 1 else np.moveaxis(entries, -1, 0)


def seen_apart(values: Array, keys: Array) -> Array:
    """Return what products of different positions' values and keys scatter by (A11)."""
    product = np.maximum(_apart(values) * _apart(keys), 0.0)
    return _stacked(product, product, product)


def _apart(entries: Array) -> Numbers:
    own, pair, _ = three(entries)
    return own - pair


def _stacked(own: Numbers, pair: Numbers, cross: Numbers) -> Array:
    if isinstance(own, float):
        return np.array((own, pair, cross))
    entries: Array = np.empty((*own.shape, 3))
    entries[..., 0], entries[..., 1], entries[..., 2] = own, pair, cross
    return entries


def average_weights(queries: Array | None, keys: Array | None, geometry: Geometry, *, causal: bool) -> AverageWeights:
    """Return the weights; of uniform attention where there are no queries and keys.

    Raises:
        NoTheory: the logits are so large that attention saturates.
    """
    own = pair = 0.0
    if queries is not None and keys is not None:
        spread, (own, pair, _) = _apart(keys), three(queries)
        own, pair = spread * own, spread * pair
        if not (own if isinstance(own, float) else own.max()) <= LARGEST:
            raise NoTheory("attention logits are so large that the softmax saturates")
    alone, alone_centred, together, centred = _shares(geometry.tokens, causal)
    return AverageWeights(
        tokens=geometry.tokens,
        own=at(alone, own),
        pair=at(together, pair),
        own_centred=at(alone_centred, own),
        pair_centred=at(centred, pair),
    )


@lru_cache(maxsize=16)
def _shares(tokens: int, causal: bool) -> tuple[list[float], list[float], list[float], list[float]]:
    """Tabulate what :class:`AverageWeights` holds, in its order but for pairs last, over the roots of variances."""
    exact, seen = tables(tokens), np.arange(1, tokens + 1)
    moments = (exact.own, exact.centred * (1 - 1 / seen) / seen)
    if not causal:
        own, centred = (table[:, -1].tolist() for table in moments)
        return own, centred, own, centred
    (own, together), (own_centred, centred) = ((_of_positions(table), _of_pairs(table)) for table in moments)
    return own, own_centred, together, centred


def _of_positions(table: Array) -> list[float]:
    """Average over positions."""
    means: list[float] = table.mean(axis=1).tolist()
    return means


def _of_pairs(table: Array) -> list[float]:
    """Average row(a) · a/k over pairs: the later position k looks at what the earlier a sees a/k of the time (A7)."""
    tokens = table.shape[1]
    seen = np.arange(1, tokens + 1)
    earlier = np.cumsum(table * seen, axis=1)[:, :-1] / seen[1:]
    means: list[float] = (2 * earlier.sum(axis=1) / max(tokens * (tokens - 1), 1)).tolist()
    return means
