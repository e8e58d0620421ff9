"""From token moments to sufficient sums: float64 numbers that add over tokens, micro-batches and processes.

Everything that a row of the table says about a site follows from its :class:`Sums`. Adding the sums of
two batches gives those of both together, so micro-batches and processes merge without error.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from normlab.recording.radii import Radii, radii_of
from normlab.recording.tokens import PairMoments, TokenMoments

Kind = Literal["activation", "gradient", "pair", "scores", "loss"]

#: The sums of each kind, in order. "tokens" counts those that entered; every mean is over features.
COLUMNS: Final[dict[Kind, tuple[str, ...]]] = {
    "activation": (
        "tokens",
        "nonfinite",
        "square",  # Σ mean square
        "mean",  # Σ mean
        "variance",  # Σ variance
        "kurtosis",  # Σ kurtosis, over the tokens that vary
        "varying",  # number of tokens that vary
        "cosine",  # Σ over sequences of ‖Σ x/‖x‖‖² less the number of tokens: cosines of all ordered pairs
        "cosine_pairs",
        "overlap",  # Σ over sequences of (‖Σ x‖² − Σ ‖x‖²)/d: products of all ordered pairs
        "overlap_pairs",
        "alone",  # tokens that are the only one of their sequence
    ),
    "gradient": (
        "tokens",
        "nonfinite",
        "squares",  # Σ ‖g‖²
        "coherent",  # Σ over sequences of ‖Σ g‖²
        "spread",  # Σ over sequences of n Σ ‖g‖²
    ),
    "pair": (
        "tokens",
        "nonfinite",  # entries of update and skip
        "update",  # Σ mean square of the update
        "skip",
        "product",  # Σ mean product
        "covariance",  # Σ covariance across features
        "lost",  # Σ mean square of what the sum lost
        "lost_update",  # Σ mean square of the update over the tokens whose sum is finite
        "lost_tokens",
        "summed",  # tokens of which there is a stored sum
    ),
    "scores": ("tokens", "nonfinite", "pairs", "value", "square"),
    "loss": ("passes", "value"),
}


class Sums(NamedTuple):
    """Sufficient sums of one tensor.

    Attributes:
        kind: which :data:`COLUMNS` they have.
        values: the sums, in float64.
        largest: the largest absolute value of an entry.
        radii: the root mean square of each token, for activations.
    """

    kind: Kind
    values: np.ndarray
    largest: float = 0.0
    radii: Radii | None = None

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]
        """Return the sums of both together."""
        radii = self.radii
        if radii is not None and other.radii is not None:
            radii = radii.joined(other.radii)
        return Sums(self.kind, self.values + other.values, max(self.largest, other.largest), radii)


def activation_sums(batch: Sequence[TokenMoments]) -> list[Sums]:
    """Return the sums of activations of one shape, all of them with every token counted, or none."""
    width = batch[0].width
    mean, squares, fourth = _rows(batch)
    total, direction = _squared_sums(batch)
    good = None if batch[0].spread is not None else ~mean.isnan()
    if good is not None:
        mean, squares = mean.where(good, 0.0), squares.where(good, 0.0)
    kurtosis = (fourth / squares).square_().mul_(width)
    variance = squares / width
    square = variance + mean * mean
    if good is None:
        tokens = torch.full(total.shape, float(mean.shape[-1]), dtype=torch.float64, device=mean.device)
        varying, nonzero = tokens, tokens
    else:
        kurtosis = kurtosis.where(squares > 0, 0.0)
        tokens, varying, nonzero = (which.sum(-1).double() for which in (good, squares > 0, square > 0))
    square_sum = square.sum(-1)
    by_sequence = [
        tokens,
        square_sum,
        mean.sum(-1),
        variance.sum(-1),
        kurtosis.sum(-1),
        varying,
        (direction - nonzero).where(nonzero > 1, 0.0),
        nonzero * (nonzero - 1),
        (total / width - square_sum).where(tokens > 1, 0.0),
        tokens * (tokens - 1),
        tokens.where(tokens == 1, 0.0),
    ]
    values = np.insert(torch.stack(by_sequence, dim=1).sum(-1).cpu().numpy(), 1, _nonfinite(batch), axis=1)
    radii = radii_of((square if good is None else square.where(good, torch.nan)).sqrt_().flatten(1).cpu().numpy())
    rows = zip(values, _largest(batch), radii, strict=True)
    return [Sums("activation", row, peak, radius) for row, peak, radius in rows]


def gradient_sums(batch: Sequence[TokenMoments], loss_scale: float) -> list[Sums]:
    """Return the sums of gradients of one shape, all of them whole or none, divided by the loss scale."""
    (norms,) = _rows(batch)
    good = ~norms.isnan()
    squares = norms.where(good, 0.0).div_(loss_scale).square_().sum(-1)
    coherent = _squared_sums(batch)[0].sum(-1).div_(loss_scale**2)
    counts = good.sum(-1)
    values = torch.stack([counts.sum(-1), squares.sum(-1), coherent, (counts * squares).sum(-1)], 1).cpu().numpy()
    values = np.insert(values, 1, _nonfinite(batch), axis=1)
    largest = _largest(batch) / abs(loss_scale)
    return [Sums("gradient", row, peak) for row, peak in zip(values, largest, strict=True)]


def unscaled(gradient: Sums, loss_scale: float) -> Sums:
    """Return the sums of a gradient divided by the loss scale."""
    if loss_scale == 1:
        return gradient
    counts, squares = gradient.values[:2], gradient.values[2:]
    values = np.concatenate([counts, squares / loss_scale / loss_scale])
    return Sums("gradient", values, gradient.largest / abs(loss_scale))


def pair_sums(batch: Sequence[PairMoments]) -> list[Sums]:
    """Return the sums of residual sums of one shape."""
    width = batch[0].update.width
    update_mean, update_squares, _ = _rows([pair.update for pair in batch])
    skip_mean, skip_squares, _ = _rows([pair.skip for pair in batch])
    product = torch.stack([pair.product.double() for pair in batch]).div_(max(width, 1))
    lost = torch.stack([pair.lost.double() for pair in batch]).div_(max(width, 1))
    good = ~(update_mean + skip_mean).isnan()
    finite = good & ~lost.isnan()
    update = update_mean.square().add_(update_squares, alpha=1 / max(width, 1))
    skip = skip_mean.square().add_(skip_squares, alpha=1 / max(width, 1))
    over_good = torch.stack([good.double(), update, skip, product, product - update_mean * skip_mean]).where(good, 0.0)
    over_finite = torch.stack([lost, update, finite.double()]).where(finite, 0.0)
    values = torch.cat([over_good, over_finite]).sum((2, 3)).T.cpu().numpy()
    summed = values[:, 0] * [pair.summed for pair in batch]
    bad = _nonfinite([pair.update for pair in batch]) + _nonfinite([pair.skip for pair in batch])
    return [Sums("pair", row) for row in np.column_stack([values[:, 0], bad, values[:, 1:], summed])]


def _rows(batch: Sequence[TokenMoments]) -> Tensor:
    """Return the numbers of the tokens of all as one float64 tensor ``[row, tensor, sequence, token]``."""
    by_row = zip(*(moments.tokens for moments in batch), strict=True)
    return torch.stack([torch.stack(rows) for rows in by_row]).double()


def _squared_sums(batch: Sequence[TokenMoments]) -> Tensor:
    """Return ‖Σ_i x_i‖² of the sequences of all, ``[row, tensor, sequence]``; squares keep the moments' dtype."""
    by_row = zip(*(moments.sequences for moments in batch), strict=True)
    return torch.stack([_squares(vectors) for vectors in by_row]).double()


def _squares(vectors: Sequence[Tensor]) -> Tensor:
    # Where nobody asked for directions, most tensors have none; one that was reduced another way may have one.
    if len({vector.shape for vector in vectors}) == 1:
        return torch.stack(list(vectors)).square_().sum(-1)
    return torch.stack([vector.square().sum(-1) for vector in vectors])


def _nonfinite(batch: Sequence[TokenMoments]) -> np.ndarray:
    counts = [moments.nonfinite for moments in batch]
    on_device = [count for count in counts if isinstance(count, Tensor)]
    if len(on_device) == len(counts):
        # One copy to the host for all of them.
        return torch.stack(on_device).double().cpu().numpy()
    return np.array([float(count) for count in counts])


def _largest(batch: Sequence[TokenMoments]) -> np.ndarray:
    # In float32, where most come from, the largest is exact; float64 holds it.
    found = torch.stack([extreme for moments in batch for extreme in moments.largest]).double()
    return found.view(len(batch), -1).abs().amax(1).cpu().numpy()
