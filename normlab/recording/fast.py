"""Token moments in the storage dtype, in pieces that stay in the cache, with a check of their own result.

Moments are centred, so that a mean loses no digits of the variance. A token that is not finite, whose
scale leaves the range in which fourth powers keep their digits, or whose mean is large against its
spread makes the whole result ``None``: :mod:`normlab.recording.careful` then computes it in float64.

Sums over the tokens of a sequence are matrix products of 128 tokens at a time, where those keep every
digit: settings of the user may round them to bfloat16, so that is tried first (:func:`exact_products`),
and elementwise operations take their place. ``var_mean``, infinity norms and ``isfinite().all()`` are ten
times slower than what is used here. Between the layers of a model every call finds cold caches, so that
few calls matter more than little arithmetic.
"""

from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.linalg import vector_norm

from normlab.recording.scratch import scratch
from normlab.recording.tokens import Piece, TokenMoments, Wanted, blocks, joined, together, working_dtype

#: Elements of a piece: with its temporary it stays in a second-level cache of 2 MiB.
PIECE: Final = 192 * 1024
#: The same for a gradient, which needs no temporary.
GRADIENT_PIECE: Final = 256 * 1024
#: The same for a pair, which has five tensors at work.
PAIR_PIECE: Final = 48 * 1024

#: Root mean squares between which fourth powers, and squares, keep their digits.
_RANGE: Final = {torch.float32: (1e-8, 1e8), torch.float64: (1e-70, 1e70)}
_SQUARE_RANGE: Final = {torch.float32: (1e-13, 1e12), torch.float64: (1e-140, 1e140)}
#: Largest (squared mean)/variance of a token: beyond, the third moment would have to be corrected.
_OFF_CENTRE: Final = 4.0
#: Tokens that one product adds up: longer runs of additions lose digits of equal entries.
_TOKENS: Final = 128
#: Features beyond which torch's norm, one run of additions a lane, loses digits of equal entries.
_LONG: Final = 384


def fast_activation(
    x: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> TokenMoments | None:
    """Return the centred moments of every token, or ``None`` where they need more care."""
    dtype, width = working_dtype(x), x.shape[2]
    tokens, sequences, largest = together(
        (_activation_piece(_working(part, kept, dtype), kept, wanted) for part, kept in block)
        for block in _parts(x, keep, PIECE)
    )
    spread = _spread(tokens[0], tokens[1], width, keep)
    if spread is None:
        return None
    if keep is not None:
        tokens[0].masked_fill_(~keep, torch.nan)
    return TokenMoments(tokens, sequences, largest, 0, width, spread if keep is None else None)


def _activation_piece(part: Tensor, kept: Tensor | None, wanted: Wanted) -> Piece:
    mean = part.mean(-1, keepdim=True)
    work = torch.sub(part, mean, out=scratch(part, 0)).square_()
    squares = work.sum(-1)
    fourth = _norm(work, spoil=True) if wanted.fourth else squares
    largest = (part.amax(), part.amin()) if wanted.largest else (squares[0, 0],)
    total = direction = squares[:, :1]
    if wanted.direction:
        norm = torch.addcmul(squares.unsqueeze(-1), mean, mean, value=part.shape[2]).sqrt_()
        if kept is not None:
            norm.masked_fill_(~kept[..., :1], 1)
        if wanted.products:
            total, direction = _products(part, norm)
        else:
            total, direction = part.sum(1), torch.div(part, norm, out=work).sum(1)
    elif wanted.total:
        total = part.sum(1)
    return Piece((mean.squeeze(-1), squares, fourth), (total, direction), largest)


def _products(part: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_i x_i and Σ_i x_i/‖x_i‖ of every sequence."""
    weights = part.new_ones((part.shape[0], 2, part.shape[1]))
    torch.reciprocal(norm.squeeze(-1), out=weights[:, 1])
    if part.shape[1] <= _TOKENS:
        sums = torch.bmm(weights, part)
    else:
        runs = zip(weights.split(_TOKENS, 2), part.split(_TOKENS, 1), strict=True)
        sums = torch.stack([torch.bmm(*run) for run in runs]).sum(0, dtype=torch.float64)
    return sums[:, 0], sums[:, 1]


def exact_products() -> bool:
    """Say whether float32 matrix products keep the digits of float32 under the current settings of torch."""
    ones = torch.full((2, 2, _TOKENS), 1.0, dtype=torch.float32, device="cpu")
    # 1 + 2⁻²⁰ is lost in bfloat16 and in tf32; 64 features make the product large enough for those kernels.
    probe = torch.bmm(ones, torch.full((2, _TOKENS, 64), 1 + 2.0**-20, dtype=torch.float32, device="cpu"))
    return bool((probe == _TOKENS * (1 + 2.0**-20)).all())


def fast_gradient(
    g: Float[Tensor, "sequence token feature"], keep: Bool[Tensor, "sequence token"] | None, wanted: Wanted
) -> TokenMoments | None:
    """Return the norm of every token, or ``None`` where it needs more care."""
    dtype, width = working_dtype(g), g.shape[2]
    (norm,), sequences, largest = together(
        (_gradient_piece(_working(part, kept, dtype), wanted) for part, kept in block)
        for block in _parts(g, keep, GRADIENT_PIECE)
    )
    norms, (low, high) = norm.numpy(), (bound * width**0.5 for bound in _SQUARE_RANGE[dtype])
    if not (norms.min() > low and norms.max() < high):
        if not _rest_is_zero((norms > low) & (norms < high), norms == 0, g, keep):
            return None
    if keep is not None:
        norm.masked_fill_(~keep, torch.nan)
    return TokenMoments((norm,), sequences, largest, 0, width)


def _gradient_piece(part: Tensor, wanted: Wanted) -> Piece:
    norm = _norm(part)
    total = part.sum(1) if wanted.total else norm[:, :1]
    return Piece((norm,), (total,), (part.amax(), part.amin()) if wanted.largest else (norm[0, 0],))


def fast_pair(
    update: Float[Tensor, "sequence token feature"],
    skip: Float[Tensor, "sequence token feature"],
    total: Float[Tensor, "sequence token feature"] | None,
    wanted: Wanted,
) -> tuple[Tensor, Tensor] | None:
    """Return ⟨u, s⟩ and Σ(stored sum − exact sum)² of every token, for terms that are both in range.

    The sum's rounding error is found without error by Knuth's two-sum. Where the stored sum is not finite
    the result is ``None``.
    """
    stored = update if total is None else total
    tensors = (blocks(tensor, PAIR_PIECE) for tensor in (update, skip, stored))
    summed = wanted.lost and total is not None
    pieces = [
        [_pair_piece(u, s, kept, summed) for u, s, kept in zip(*block, strict=True)]
        for block in zip(*tensors, strict=True)
    ]
    product, lost = (joined([[part[row] for part in block] for block in pieces]) for row in range(2))
    return (product, lost) if lost.numpy().max() < np.inf else None


def comparable(update: TokenMoments, skip: TokenMoments) -> bool:
    """Say whether the fast path holds for a pair: both terms are in range, and stored in at most 32 bits."""
    return all(moments.spread is not None and moments.tokens[0].dtype == torch.float32 for moments in (update, skip))


def _pair_piece(update: Tensor, skip: Tensor, total: Tensor, summed: bool) -> tuple[Tensor, Tensor]:
    u, s, total = (tensor if tensor.dtype == torch.float32 else tensor.float() for tensor in (update, skip, total))
    work = torch.mul(u, s, out=scratch(u, 0))
    product = work.sum(-1)
    if not summed:
        return product, torch.zeros_like(product)
    exact = torch.add(u, s, out=work)
    seen = torch.sub(exact, s, out=scratch(u, 1))
    error = torch.sub(exact, seen, out=scratch(u, 2))
    torch.sub(s, error, out=error).add_(torch.sub(u, seen, out=seen))
    torch.sub(total, exact, out=seen).sub_(error)
    return product, seen.square_().sum(-1)


def _parts(x: Tensor, keep: Tensor | None, elements: int) -> list[list[tuple[Tensor, Tensor | None]]]:
    """Return the pieces of ``x``, each with the entries of it that count."""
    pieces = blocks(x, elements)
    if keep is None:
        return [[(part, None) for part in block] for block in pieces]
    kept = blocks(keep.unsqueeze(-1).expand(x.shape), elements)
    return [list(zip(*block, strict=True)) for block in zip(pieces, kept, strict=True)]


def _working(part: Tensor, kept: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return a piece in the working dtype, with zeros for what does not count."""
    part = part if part.dtype == dtype else part.to(dtype)
    return part if kept is None else part.masked_fill(~kept, 0)


def _norm(x: Tensor, *, spoil: bool = False) -> Tensor:
    """Return ‖x‖ of each token; ``spoil`` allows to overwrite ``x``."""
    if x.shape[-1] <= _LONG:
        return vector_norm(x, dim=-1)
    return (x.square_() if spoil else x.square()).sum(-1).sqrt_()


def _spread(mean: Tensor, squares: Tensor, width: int, keep: Tensor | None) -> tuple[float, float] | None:
    """Return the range of Σ(x−μ)² if every token is finite, in range, and has a mean not large against its spread."""
    means, spreads = (mean.numpy(), squares.numpy()) if keep is None else (mean[keep].numpy(), squares[keep].numpy())
    if not spreads.size:
        return None
    low, high = (bound * bound * width for bound in _RANGE[squares.dtype])
    least, most = float(spreads.min()), float(spreads.max())
    if not (low < least and most < high):
        return None
    offset = max(float(means.max()), -float(means.min()))
    if width * offset * offset > _OFF_CENTRE * least and not (width * means * means <= _OFF_CENTRE * spreads).all():
        return None
    return least, most


def _rest_is_zero(fine: np.ndarray, zero: np.ndarray, x: Tensor, keep: Tensor | None) -> bool:
    """Say whether the tokens that are not fine are exactly zero, and not only underflown."""
    if not (fine | zero).all():
        return False
    suspects = torch.from_numpy(zero) if keep is None else torch.from_numpy(zero) & keep
    return not bool(x[suspects].any())
