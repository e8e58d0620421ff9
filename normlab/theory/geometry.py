"""Which pairs of tokens a covariance is carried for, and how often each pair occurs in a batch.

A covariance is an array with one entry a pair of tokens (i, j): E⟨x_i, x_j⟩/d for a stream, E⟨g_i, g_j⟩ for its
gradient. Everything but attention acts on each entry by itself, so that one code serves every choice of pairs:

* :func:`of_batch`: all pairs of the positions of a given batch, by pairs of sequences;
* :func:`of_random`: all pairs of positions of one sequence, and of two sequences, that stand for all others;
* :func:`averages`: three numbers, for a token with itself, with another of its sequence, and of another sequence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from normlab.theory.kernels import Array

#: A float, or an array of them where covariances have axes before the last.
Numbers: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class Geometry:
    """The pairs of tokens of a batch.

    Attributes:
        batch: sequences.
        tokens: positions of a sequence.
        rows: for each pair of sequences, the pair of a sequence with itself that holds the first one's variances;
            ``None`` where there are three averages in place of pairs of positions.
        columns: the same for the second one.
        weight: how often each entry occurs in the batch, of a shape that fits the covariance's.
        within: 1 where both tokens are of one sequence, otherwise 0.
        own: 1 where both are the same token, otherwise 0.
        equal_inputs: how often both tokens are equal, 0 to 1.
        equal_targets: how often both tokens have the same target, 0 to 1.
        equal_positions: how often both stand at the same position.
        foretold: how often the second token's target is the first token, and the first's the second.
        source: the pairs of an encoder's tokens, where these are those of the decoder that reads it.
    """

    batch: int
    tokens: int
    rows: NDArray[np.int64] | None
    columns: NDArray[np.int64] | None
    weight: Array
    within: Array
    own: Array
    equal_inputs: Array
    equal_targets: Array
    equal_positions: Array
    foretold: tuple[Array, Array]
    source: "Geometry | None" = None

    @property
    def count(self) -> int:
        """Tokens of the batch."""
        return self.batch * self.tokens

    def sides(self, covariance: Array) -> tuple[Array, Array]:
        """Return the variances of the first and of the second token of each pair."""
        if self.rows is None or self.columns is None:
            own = covariance[..., :1]
            return own, own
        return self.spread(self.diagonal(covariance))

    def diagonal(self, covariance: Array) -> Array:
        """Return the variances of each sequence's tokens."""
        diagonal: Array = covariance[..., : self.alone, :, :].diagonal(0, -2, -1)
        return diagonal

    def spread(self, variances: Array) -> tuple[Array, Array]:
        """Return numbers of each sequence's tokens for the first and for the second token of each pair."""
        if len(variances) == len(self.own):
            return variances[:, :, None], variances[:, None, :]
        return variances[self.rows][:, :, None], variances[self.columns][:, None, :]

    @cached_property
    def alone(self) -> int:
        """How many of the blocks are pairs of positions of one sequence; they come first."""
        return int((self.within[:, 0, 0] > 0).sum())

    @cached_property
    def counts(self) -> Array:
        """How many ordered pairs of the batch's tokens are the same token, of one sequence, and of two sequences."""
        if self.rows is None:
            return self.weight
        others = self.count * (self.tokens - 1)
        return np.array([self.count, others, self.count**2 - self.count - others], dtype=np.float64)

    def means(self, entries: Array) -> Array:
        """Return three averages: over tokens with themselves, with others of their sequence, and of other sequences.

        They may have axes before the last, and stand for all pairs in what follows.
        """
        if self.rows is None or entries.ndim < 3:
            return entries
        if entries.shape[-3:] != self.own.shape:
            entries = np.broadcast_to(entries, (*entries.shape[:-3], *self.own.shape))
        pairs = entries.reshape(*entries.shape[:-2], -1)
        owns = pairs[..., : self.alone, :: self.tokens + 1]
        of_sums, of_owns = self._shares
        found: Array = pairs.dot(self._ones).dot(of_sums) + owns.reshape(*owns.shape[:-2], -1).dot(of_owns)
        return found

    @cached_property
    def _ones(self) -> Array:
        return np.ones(self.tokens**2)

    @cached_property
    def _shares(self) -> tuple[Array, Array]:
        """How much the sum of a block, and an entry of a token with itself, counts in each of the three averages."""
        one, other = float(self.weight[0, 0, 0]), float(self.weight[-1, 0, 0])
        own, others, across = np.maximum(self.counts, 1.0).tolist()
        inside = np.arange(len(self.own)) < self.alone
        of_sums = np.where(inside[:, None], [0.0, one / others, 0.0], [0.0, 0.0, other / across])
        return of_sums, np.tile([one / own, -one / others, 0.0], (self.alone * self.tokens, 1))

    def all_means(self, named: Mapping[str, Array | None]) -> dict[str, Array]:
        """Return :meth:`means` by name, of what is given; one array under several names is averaged once."""
        if self.rows is None:
            return {name: entries for name, entries in named.items() if entries is not None}
        known: dict[int, Array] = {}
        found: dict[str, Array] = {}
        for name, entries in named.items():
            if entries is not None:
                if id(entries) not in known:
                    known[id(entries)] = self.means(entries)
                found[name] = known[id(entries)]
        return found

    def singles(self, entries: Array) -> Array:
        """Return the entries of tokens with themselves."""
        return entries[..., :1] if self.rows is None else self.diagonal(entries).copy()

    def shared(self, singles: Array | float, entries: Array) -> Numbers:
        """Return the sum over the batch's tokens of the product of entries of :meth:`singles` (or 0) and of another."""
        if isinstance(singles, float):
            return 0.0
        if self.rows is None:
            return singles[..., 0] * entries[..., 0] * self.count
        return float(self.weight[0, 0, 0]) * float(np.vdot(singles, self.diagonal(entries)))

    def weighed(self, entries: Array, weights: Array) -> Numbers:
        """Return the sum over all ordered pairs of tokens of an entry times the weights of both, each with itself."""
        if self.rows is None:
            return self.total(entries) * weights[..., 0] ** 2
        rows, columns = self.sides(weights)
        sums = rows.swapaxes(-1, -2) @ entries @ columns.swapaxes(-1, -2)
        return float(sums[:, 0, 0] @ self.weight[:, 0, 0])

    def total(self, entries: Array) -> Numbers:
        """Return the sum over all ordered pairs of the batch's tokens, each token with itself included."""
        return self.means(entries) @ self.counts

    def product(self, one: Array, other: Array) -> Numbers:
        """Return the sum over all ordered pairs of the batch's tokens of the product of two entries."""
        if self.rows is None:
            return (one * other) @ self.counts
        pairs = (entries.reshape(*entries.shape[:-2], -1) for entries in (one, other))
        return np.vecdot(*pairs) @ self.weight[:, 0, 0]

    def trace(self, entries: Array) -> Numbers:
        """Return the sum over the batch's tokens of the entry of each with itself."""
        return self.mean_square(entries) * self.count

    def mean_square(self, covariance: Array) -> Numbers:
        """Return the mean over tokens."""
        if self.rows is None or covariance.shape[-3:] != self.own.shape:
            return self.means(covariance).T[0]
        return self.diagonal(covariance).sum(axis=(-2, -1)) * self._shares[1][0, 0]

    def overlap(self, covariance: Array) -> Numbers:
        """Return p/q: the mean over pairs of different positions of a sequence, over the mean square."""
        if self.tokens == 1:
            return float("nan")
        own, others, _ = self.means(covariance).T
        return others / own

    def apart(self, covariance: Array) -> Numbers:
        """Return q − p, what different tokens of a sequence do not share."""
        own, others, _ = self.means(covariance).T
        return own - others if self.tokens > 1 else own

    def coherence(self, gradient: Array) -> Numbers:
        """Return ‖Σ_i g_i‖²/(n Σ_i ‖g_i‖²) over a sequence's tokens, pooled over sequences; the trace must not be 0."""
        own, others, _ = self.means(gradient).T
        return (own + (self.tokens - 1) * others) / (self.tokens * own)


def of_batch(tokens: Int[Tensor, "batch token"], targets: Int[Tensor, "batch token"]) -> Geometry:
    """Return all pairs of positions of a batch; a pair of two sequences stands for both of its orders."""
    inputs, labels = tokens.numpy(), targets.numpy()
    count, length = inputs.shape
    # Sequences with themselves come first, so that their index is the sequence's number.
    pairs = [(a, a) for a in range(count)] + [(a, b) for a in range(count) for b in range(a + 1, count)]
    rows, columns = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    same = rows == columns
    within = np.where(same, 1.0, 0.0)[:, None, None]
    positions = np.broadcast_to(np.eye(length), (len(pairs), length, length))
    return Geometry(
        batch=count,
        tokens=length,
        rows=rows,
        columns=columns,
        weight=np.where(same, 1.0, 2.0)[:, None, None],
        within=within,
        own=within * positions,
        equal_inputs=(inputs[rows][:, :, None] == inputs[columns][:, None, :]).astype(np.float64),
        equal_targets=(labels[rows][:, :, None] == labels[columns][:, None, :]).astype(np.float64),
        equal_positions=positions,
        foretold=(
            (inputs[rows][:, :, None] == labels[columns][:, None, :]).astype(np.float64),
            (labels[rows][:, :, None] == inputs[columns][:, None, :]).astype(np.float64),
        ),
    )


def of_random(batch: int, tokens: int, vocab: int) -> Geometry:
    """Return one sequence with itself and with another: different tokens are equal with probability 1/vocab."""
    single = np.arange(1 if batch == 1 else 2) == 0
    within = np.where(single, 1.0, 0.0)[:, None, None]
    positions = np.broadcast_to(np.eye(tokens), (len(single), tokens, tokens))
    own = within * positions
    equal = own + (1 - own) / vocab
    foretold, later = np.full_like(equal, 1 / vocab), np.arange(1, tokens)
    # A position's target is the next one's token.
    foretold[0, later, later - 1] = 1.0
    first = np.zeros(len(single), dtype=np.int64)
    return Geometry(
        batch=batch,
        tokens=tokens,
        rows=first,
        columns=first,
        weight=np.where(single, float(batch), float(batch * (batch - 1)))[:, None, None],
        within=within,
        own=own,
        equal_inputs=equal,
        equal_targets=equal,
        equal_positions=positions,
        foretold=(foretold, foretold.transpose(0, 2, 1)),
    )


def averages(full: Geometry) -> Geometry:
    """Return three averages in place of the pairs of ``full``."""
    own, within = full.own, full.within - full.own
    kinds = [own, within, 1 - full.within]
    weight = np.array([full.total(kind) for kind in kinds])

    def mean(entries: Array) -> Array:
        sums = [full.total(kind * entries) for kind in kinds]
        return np.array([total / count if count else 0.0 for total, count in zip(sums, weight, strict=True)])

    return Geometry(
        batch=full.batch,
        tokens=full.tokens,
        rows=None,
        columns=None,
        weight=weight,
        within=np.array([1.0, 1.0, 0.0]),
        own=np.array([1.0, 0.0, 0.0]),
        equal_inputs=mean(full.equal_inputs),
        equal_targets=mean(full.equal_targets),
        equal_positions=mean(full.equal_positions),
        foretold=(mean(full.foretold[0]), mean(full.foretold[1])),
        source=None if full.source is None else averages(full.source),
    )
