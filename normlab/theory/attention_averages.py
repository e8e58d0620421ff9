"""Attention over three averages in place of pairs of positions (A8 to A10 of ``docs/theory.md``).

Tokens of a sequence are taken as exchangeable, so that all that a mask does is in two numbers: how much of a pair's
weight falls on a token with itself, for a position with itself and for two positions.
"""

from dataclasses import dataclass

import numpy as np

from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.quenched import LARGEST, at, tables
from normlab.theory.reasons import NoTheory


@dataclass(frozen=True, eq=False)
class AverageWeights:
    """The share of Σ_st W^{ij}_st that falls on s = t.

    Attributes:
        tokens: positions of a sequence.
        own: the share for i = j, averaged over i.
        pair: the share for i ≠ j, averaged over pairs.
        own_centred: the share for i = j of what centring leaves of δ_st.
        pair_centred: the same for i ≠ j.
    """

    tokens: int
    own: float
    pair: float
    own_centred: float
    pair_centred: float

    def forward(self, entries: Array) -> Array:
        """Return Σ_st W^{ij}_st entries_st."""
        own, pair, cross = entries
        return np.array([pair + (own - pair) * self.own, pair + (own - pair) * self.pair, cross])

    def backward(self, entries: Array) -> Array:
        """Return Σ_ij W^{ij}_st entries_ij; the sum over all pairs of a sequence stays what it was."""
        own, pair, cross = entries
        others = self.tokens - 1
        back = self.own * own + others * self.pair * pair
        return np.array([back, (own + others * pair - back) / others if others else 0.0, cross])

    def to_queries(self, values: Array, keys: Array) -> Array:
        """Return Σ_st W^{ij}_st V°_st K_st."""
        spread = (values[0] - values[1]) * (keys[0] - keys[1])
        return np.array([spread * self.own_centred, spread * self.pair_centred, 0.0])

    def to_keys(self, entries: Array, values: Array) -> Array:
        """Return Σ_ij W^{ij}_st entries_ij V°_st; keys' gradients of a sequence sum to 0."""
        others = self.tokens - 1
        seen = self.own_centred * entries[0] + others * self.pair_centred * entries[1]
        own = (values[0] - values[1]) * seen
        return np.array([own, -own / others if others else 0.0, 0.0])


def average_weights(queries: Array | None, keys: Array | None, geometry: Geometry, *, causal: bool) -> AverageWeights:
    """Return the weights; of uniform attention where there are no queries and keys.

    Raises:
        NoTheory: the logits are so large that attention saturates.
    """
    own = pair = 0.0
    if queries is not None and keys is not None:
        spread = keys[0] - keys[1]
        own, pair = float(spread * queries[0]), float(spread * queries[1])
        if not own <= LARGEST:
            raise NoTheory("attention logits are so large that the softmax saturates")
    return _masked(own, pair, geometry.tokens) if causal else _unmasked(own, pair, geometry.tokens)


def _masked(own: float, pair: float, tokens: int) -> AverageWeights:
    alone, alone_centred = (float(row.mean()) for row in _rows(own, tokens))
    together, centred = (_of_pairs(row) for row in _rows(pair, tokens))
    return AverageWeights(tokens, alone, together, alone_centred, centred)


def _of_pairs(row: Array) -> float:
    """Average row(a) · a/k over pairs: the later position k looks at what the earlier a sees a/k of the time (A7)."""
    tokens = len(row)
    seen = np.arange(1, tokens + 1)
    earlier = np.cumsum(row * seen)[:-1] / seen[1:]
    return 2 * float(earlier.sum()) / max(tokens * (tokens - 1), 1)


def _unmasked(own: float, pair: float, tokens: int) -> AverageWeights:
    (alone, alone_centred), (together, centred) = ((row[-1] for row in _rows(x, tokens)) for x in (own, pair))
    return AverageWeights(tokens, float(alone), float(together), float(alone_centred), float(centred))


def _rows(variance: float, tokens: int) -> list[Array]:
    """Read the exact moments of a softmax at one variance, for every number of positions."""
    exact = tables(tokens)
    own = at(exact.own, variance)
    seen = np.arange(1, tokens + 1)
    return [own, at(exact.centred, variance) * (1 - 1 / seen) / seen]
