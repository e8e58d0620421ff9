"""What the tokens of a tensor contribute to the sums: a few floats a token, and a vector or two a sequence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

#: Runs of a sequence whose numbers are kept apart: many small tensors splinter the memory that large ones give back.
_KEPT: Final = 16


class TokenMoments(NamedTuple):
    """What a tensor's tokens contribute, as rows ``[sequence, token]`` and vectors ``[sequence, feature]``.

    Attributes:
        tokens: for an activation the feature mean μ, Σ(x−μ)² and √Σ(x−μ)⁴; for a gradient ‖g‖. A token
            that is left out is NaN in the first row.
        sequences: Σ_i x_i, and for an activation Σ_i x_i/‖x_i‖ over the tokens that are not zero.
        largest: numbers the largest of which, signs aside, is the largest |x|.
        nonfinite: how many entries are NaN or infinite.
        width: the number of features.
        spread: the smallest and the largest Σ(x−μ)² of an activation whose tokens all count and are known
            to be in range; otherwise ``None``.
    """

    tokens: tuple[Tensor, ...]
    sequences: tuple[Tensor, ...]
    largest: tuple[Tensor, ...]
    nonfinite: Tensor | int
    width: int
    spread: tuple[float, float] | None = None


class Piece(NamedTuple):
    """What a piece of a tensor contributes to :class:`TokenMoments`.

    Attributes:
        tokens: rows of numbers, ``[sequence, token]``.
        sequences: sums over the tokens of each sequence, ``[sequence, feature]``.
        largest: numbers the largest of which, signs aside, is the largest of the piece.
    """

    tokens: tuple[Tensor, ...]
    sequences: tuple[Tensor, ...]
    largest: tuple[Tensor, ...] = ()


class PairMoments(NamedTuple):
    """What the tokens of a residual sum contribute.

    Attributes:
        update: moments of the update u.
        skip: moments of the skip s.
        product: ⟨u, s⟩ of each token.
        lost: Σ(stored sum − exact sum)² of each token; NaN where that is not finite.
        summed: whether there is a stored sum; without one, ``lost`` means nothing.
    """

    update: TokenMoments
    skip: TokenMoments
    product: Tensor
    lost: Tensor
    summed: bool


@dataclass(frozen=True)
class Wanted:
    """Which of the numbers that cost a pass of their own are computed; the others are of no use.

    Attributes:
        largest: the largest |x|.
        fourth: the fourth moment.
        total: the sum over the tokens of a sequence.
        direction: the sum over the unit vectors of the tokens of a sequence.
        product: the product of update and skip.
        lost: what the residual sum lost to rounding.
        products: whether sums over tokens may be matrix products, since those keep every digit.
    """

    largest: bool = True
    fourth: bool = True
    total: bool = True
    direction: bool = True
    product: bool = True
    lost: bool = True
    products: bool = False


def as_sequences(x: Tensor) -> Float[Tensor, "sequence token feature"]:
    """Return ``x`` as sequences of tokens: its last two axes, or single tokens where it has fewer than three."""
    if x.dim() == 3:
        return x
    if x.dim() > 3:
        return x.flatten(0, -3)
    return x.reshape(-1, 1, x.shape[-1] if x.dim() else 1)


def working_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of the fast path: that of storage, and float32 for 16-bit tensors."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def blocks(x: Tensor, elements: int) -> list[list[Tensor]]:
    """Split ``x`` into pieces of about ``elements`` elements: blocks of sequences, each as runs of tokens.

    Pieces bound the temporaries and keep them in the cache. A piece holds at least one token.
    """
    sequences, tokens, width = x.shape
    if sequences * tokens * width <= elements:
        return [[x]] if x.numel() else []
    rows = max(1, elements // width)
    if tokens <= rows:
        return [[block] for block in x.split(rows // tokens)]
    return [list(sequence.split(rows, dim=1)) for sequence in x.split(1)]


def joined(rows: list[list[Tensor]]) -> Tensor:
    """Put numbers of each token of :func:`blocks` together again."""
    if len(rows) == 1 and len(rows[0]) == 1:
        return rows[0][0]
    return torch.cat([block[0] if len(block) == 1 else torch.cat(block, 1) for block in rows])


def together(pieces: Iterable[Iterable[Piece]]) -> Piece:
    """Put what the pieces of :func:`blocks` contribute together, in float64 where runs of a sequence are added.

    Pieces are taken one by one, and none is kept: the sums over runs of one token are as large as the tensor.
    """
    found = [_of_runs(iter(block)) for block in pieces]
    if len(found) == 1:
        return found[0]
    tokens, sequences, largest = zip(*found, strict=True)
    return Piece(
        tuple(map(torch.cat, zip(*tokens, strict=True))),
        tuple(map(torch.cat, zip(*sequences, strict=True))),
        tuple(extreme for each in largest for extreme in each),
    )


def _of_runs(runs: Iterator[Piece]) -> Piece:
    first = next(runs)
    rows, sums, largest = [first.tokens], first.sequences, [*first.largest]
    done: list[tuple[Tensor, ...]] = []
    for run in runs:
        if not done and len(rows) == 1:
            # Copies, also of float64: what nobody wants may share its memory with what is wanted.
            sums = tuple(one.to(torch.float64, copy=True) for one in sums)
        for one, two in zip(sums, run.sequences, strict=True):
            one.add_(two)
        rows.append(run.tokens)
        largest += run.largest
        if len(rows) == _KEPT:
            done.append(_end_to_end(rows))
            rows, largest = [], [torch.stack(largest).abs_().amax()] if largest else []
    return Piece(_end_to_end([*done, *rows]), sums, tuple(largest)) if done or len(rows) > 1 else first


def _end_to_end(rows: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.cat(row, 1) for row in zip(*rows, strict=True))
