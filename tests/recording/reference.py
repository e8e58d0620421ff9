"""Every quantity of a site, computed slowly in float64 from its definition: nothing of normlab is used."""

import math

import numpy as np
import torch


def tokens_of(x: torch.Tensor, mask: torch.Tensor | None = None) -> list[np.ndarray]:
    """The counted tokens of each sequence of [batch, token, feature], in float64."""
    array = x.detach().double().numpy()
    keep = np.ones(array.shape[:2], bool) if mask is None else mask.numpy()
    keep = keep & np.isfinite(array).all(-1)
    return [sequence[kept] for sequence, kept in zip(array, keep, strict=True)]


def _common(x: torch.Tensor, mask: torch.Tensor | None) -> dict[str, float]:
    rows = np.concatenate(tokens_of(x, mask))
    array = x.detach().double().numpy()
    real = array if mask is None else array[mask.numpy()]
    return {
        "count": len(rows),
        "nonfinite": int((~np.isfinite(real)).sum()),
        "max_abs": max((abs(entry) for entry in rows.ravel()), default=math.nan),
    }


def activation(x: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, float]:
    sequences = tokens_of(x, mask)
    rows = np.concatenate(sequences)
    means = np.array([math.fsum(row) / len(row) for row in rows])
    squares = np.array([math.fsum(row * row) / len(row) for row in rows])
    variances, fourths = [], []
    for row in rows:
        centred = row - math.fsum(row) / len(row)
        variance = math.fsum(centred**2) / len(row)
        constant = row.max() == row.min()
        variances.append(0.0 if constant else variance)
        if not constant:
            fourths.append(math.fsum((centred / math.sqrt(variance)) ** 4) / len(row))
    radii = sorted(math.sqrt(square) for square in squares)
    middle = len(radii) // 2
    products, cosines = [], []
    for sequence in sequences:
        units = [row / np.linalg.norm(row) for row in sequence if np.linalg.norm(row) > 0]
        products += [float(a @ b) for i, a in enumerate(sequence) for j, b in enumerate(sequence) if i != j]
        cosines += [float(a @ b) for i, a in enumerate(units) for j, b in enumerate(units) if i != j]
    mean_square = squares.mean()
    return {
        "mean_square": mean_square,
        "rms": math.sqrt(mean_square),
        "mean": means.mean(),
        "variance": np.mean(variances),
        "median_rms": radii[middle] if len(radii) % 2 else (radii[middle - 1] + radii[middle]) / 2,
        "kurtosis": np.mean(fourths) if fourths else math.nan,
        "token_cosine": np.mean(cosines) if cosines else math.nan,
        "token_overlap": np.mean(products) / (mean_square * x.shape[-1]) if products and mean_square else math.nan,
        **_common(x, mask),
    }


def gradient(g: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, float]:
    sequences = tokens_of(g, mask)
    coherent = math.fsum(float((sequence.sum(0) ** 2).sum()) for sequence in sequences)
    spread = math.fsum(len(sequence) * float((sequence**2).sum()) for sequence in sequences)
    return {
        "l2": math.sqrt(math.fsum(float((sequence**2).sum()) for sequence in sequences)),
        "grad_coherence": coherent / spread if spread else math.nan,
        **_common(g, mask),
    }


def update(
    u: torch.Tensor, s: torch.Tensor, stored: torch.Tensor, mask: torch.Tensor | None = None
) -> dict[str, float]:
    both = torch.isfinite(u).all(-1) & torch.isfinite(s).all(-1)
    both = both if mask is None else both & mask
    ours, theirs, sums = (np.concatenate(tokens_of(x, both)) for x in (u, s, stored))
    products = (ours - ours.mean(-1, keepdims=True)) * (theirs - theirs.mean(-1, keepdims=True))
    # fsum rounds once: what is lost is known to the last bit, whatever the scales.
    lost = (
        math.fsum(
            math.fsum((total, -one, -other)) ** 2
            for total, one, other in zip(sums.ravel(), ours.ravel(), theirs.ravel(), strict=True)
        )
        / ours.size
    )
    return {
        "update_ratio": math.sqrt((ours**2).mean() / (theirs**2).mean()),
        "alignment": float((ours * theirs).sum() / math.sqrt((ours**2).sum()) / math.sqrt((theirs**2).sum())),
        "covariance": products.mean(-1).mean(),
        "lost_share": math.sqrt(lost / (ours**2).mean()),
    }
