"""Token moments in float64: for what the fast path hands over, and on accelerators, where waiting costs more.

Nothing here looks at a number on the host. Entries that are not finite are counted, and their tokens
left out.
"""

from typing import Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.linalg import vector_norm

from normlab.recording.tokens import Piece, TokenMoments, blocks, joined, together

#: Elements of a piece: four float64 tensors of this size stay in a second-level cache of 2 MiB.
PIECE: Final = 48 * 1024


def careful_activation(
    x: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None
) -> TokenMoments:
    """Return the centred moments of every token."""
    if not x.numel():
        return _of_nothing(x, 3, 2)
    parts, good, nonfinite = _finite(x, keep)
    (mean, squares, fourth, high, low), sequences, _ = together(
        (_activation_piece(part.double().masked_fill(~real, 0)) for part, real in block) for block in parts
    )
    tokens = mean.masked_fill(~good, torch.nan), squares, fourth
    return TokenMoments(tokens, sequences, (high.amax(), low.amin()), nonfinite, x.shape[2])


def _activation_piece(part: Tensor) -> Piece:
    high, low = part.amax(-1), part.amin(-1)
    # A constant token's mean may round; its spread is zero by definition.
    mean = torch.where(high == low, high, part.mean(-1))
    centred = part - mean.unsqueeze(-1)
    squares = centred.square().sum(-1)
    spread = torch.where(squares > 0, squares, 1.0)
    # Divided before they are squared again, fourth powers cannot overflow.
    fourth = vector_norm(centred.square_().div_(spread.unsqueeze(-1)), dim=-1) * squares
    norm = vector_norm(part, dim=-1)
    unit = torch.where(norm > 0, 1 / norm, 0.0)
    return Piece((mean, squares, fourth, high, low), (part.sum(1), (part * unit.unsqueeze(-1)).sum(1)))


def careful_gradient(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None
) -> TokenMoments:
    """Return the norm of every token."""
    if not g.numel():
        return _of_nothing(g, 1, 1)
    parts, good, nonfinite = _finite(g, keep)
    (norm, largest), sequences, _ = together(
        (_gradient_piece(part.double().masked_fill(~real, 0)) for part, real in block) for block in parts
    )
    return TokenMoments((norm.masked_fill(~good, torch.nan),), sequences, (largest.amax(),), nonfinite, g.shape[2])


def _gradient_piece(part: Tensor) -> Piece:
    return Piece((vector_norm(part, dim=-1), part.abs().amax(-1)), (part.sum(1),))


def careful_pair(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
) -> tuple[Tensor, Tensor]:
    """Return ⟨u, s⟩ and Σ(stored sum − exact sum)² of every token; what is not finite is NaN."""
    if not update.numel():
        return update.new_zeros(update.shape[:2]), update.new_zeros(update.shape[:2])
    stored = update if total is None else total
    tensors = (blocks(tensor, PIECE) for tensor in (update, skip, stored))
    pieces = [[_pair_piece(*parts) for parts in zip(*block, strict=True)] for block in zip(*tensors, strict=True)]
    product, lost = (joined([[part[row] for part in block] for block in pieces]) for row in range(2))
    return product.where(product.isfinite(), torch.nan), lost.where(lost.isfinite(), torch.nan)


def _pair_piece(update: Tensor, skip: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    u, s, stored = update.double(), skip.double(), total.double()
    exact = u + s
    seen = exact - s
    error = (s - (exact - seen)) + (u - seen)
    return (u * s).sum(-1), ((stored - exact) - error).square().sum(-1)


def _of_nothing(x: Tensor, rows: int, vectors: int) -> TokenMoments:
    """Return the moments of a tensor without entries: no token counts."""
    tokens = x.new_full(x.shape[:2], torch.nan, dtype=torch.float64)
    total, none = x.new_zeros((x.shape[0], x.shape[2]), dtype=torch.float64), x.new_zeros((), dtype=torch.float64)
    return TokenMoments((tokens,) * rows, (total,) * vectors, (none,), 0, x.shape[2])


def _finite(x: Tensor, keep: Tensor | None) -> tuple[list[list[tuple[Tensor, Tensor]]], Tensor, Tensor]:
    """Return the pieces, each with the entries that are used; the tokens that are; how many entries spoil theirs."""
    pieces = blocks(x, PIECE)
    finite = joined([[part.isfinite().sum(-1) for part in block] for block in pieces])
    good, bad = finite == x.shape[2], x.shape[2] - finite
    if keep is not None:
        good, bad = good & keep, bad.where(keep, 0)
    used = blocks(good.unsqueeze(-1).expand(x.shape), PIECE)
    return [list(zip(*block, strict=True)) for block in zip(pieces, used, strict=True)], good, bad.sum()
