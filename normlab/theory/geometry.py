"""Which pairs of tokens a covariance is carried for, and how often each pair occurs in a batch.

A covariance is an array with one entry a pair of tokens (i, j): E⟨x_i, x_j⟩/d for a stream, E⟨g_i, g_j⟩ for its
gradient. Everything but attention acts on each entry by itself, so that one code serves every choice of pairs:

* :func:`of_batch`: all pairs of the positions of a given batch, by pairs of sequences;
* :func:`of_random`: all pairs of positions of one sequence, and of two sequences, that stand for all others;
* :func:`averages`: three numbers, for a token with itself, with another of its sequence, and of another sequence.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from normlab.theory.kernels import Array


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

    @property
    def count(self) -> int:
        """Tokens of the batch."""
        return self.batch * self.tokens

    def sides(self, covariance: Array) -> tuple[Array, Array]:
        """Return the variances of the first and of the second token of each pair."""
        if self.rows is None or self.columns is None:
            return covariance[:1], covariance[:1]
        diagonal = np.diagonal(covariance, axis1=-2, axis2=-1)
        return diagonal[self.rows][:, :, None], diagonal[self.columns][:, None, :]

    def total(self, entries: Array) -> float:
        """Return the sum over all ordered pairs of the batch's tokens, each token with itself included."""
        if self.rows is None:
            return float(self.weight @ entries)
        blocks = np.broadcast_to(entries, self.own.shape).sum(axis=(-2, -1))
        return float(self.weight[:, 0, 0] @ blocks)

    def within_sequences(self, entries: Array) -> float:
        """Return the sum over all ordered pairs of tokens of one sequence."""
        if self.rows is None:
            return float((self.weight * self.within) @ entries)
        return float(self.weight[0, 0, 0] * entries[: self.alone].sum())

    @cached_property
    def alone(self) -> int:
        """How many of the blocks are pairs of positions of one sequence; they come first."""
        return int((self.within[:, 0, 0] > 0).sum())

    def trace(self, entries: Array) -> float:
        """Return the sum over the batch's tokens of the entry of each with itself."""
        if self.rows is None:
            return float((self.weight * self.own) @ entries)
        return float(self.weight[0, 0, 0] * np.einsum("bii->", entries[: self.alone]))

    def mean_square(self, covariance: Array) -> float:
        """Return the mean over tokens."""
        return self.trace(covariance) / self.count

    def overlap(self, covariance: Array) -> float:
        """Return p/q: the mean over pairs of different positions of a sequence, over the mean square."""
        if self.tokens == 1:
            return float("nan")
        pairs = self.within_sequences(covariance) - self.trace(covariance)
        return pairs / (self.count * (self.tokens - 1)) / self.mean_square(covariance)

    def apart(self, covariance: Array) -> float:
        """Return q − p, what different tokens of a sequence do not share."""
        square = self.mean_square(covariance)
        return square * (1 - self.overlap(covariance)) if self.tokens > 1 and square > 0 else square

    def coherence(self, gradient: Array) -> float:
        """Return ‖Σ_i g_i‖²/(n Σ_i ‖g_i‖²) over a sequence's tokens, pooled over sequences."""
        trace = self.trace(gradient)
        return self.within_sequences(gradient) / (self.tokens * trace) if trace > 0 else float("nan")


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
    )


def of_random(batch: int, tokens: int, vocab: int) -> Geometry:
    """Return one sequence with itself and with another: different tokens are equal with probability 1/vocab."""
    single = np.arange(1 if batch == 1 else 2) == 0
    within = np.where(single, 1.0, 0.0)[:, None, None]
    positions = np.broadcast_to(np.eye(tokens), (len(single), tokens, tokens))
    own = within * positions
    equal = own + (1 - own) / vocab
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
    )
