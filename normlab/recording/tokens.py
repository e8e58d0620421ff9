"""What the tokens of a tensor contribute to the sums: a few floats a token, and a vector or two a sequence."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


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


def added(vectors: list[list[Tensor]]) -> Tensor:
    """Put sums over the tokens of each piece of :func:`blocks` together: added over the runs of a sequence."""
    if len(vectors) == 1 and len(vectors[0]) == 1:
        return vectors[0][0]
    return torch.cat([block[0] if len(block) == 1 else torch.stack(block).double().sum(0) for block in vectors])
