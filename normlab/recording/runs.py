"""The sizes of parameters in float64, by compiled code or from the norms of short runs of their entries."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm

from normlab.recording.native import native_sizes
from normlab.recording.odd import SMALLEST, TOO_SMALL, careful_size, is_usual, odd_size, part_of
from normlab.recording.plan import Parameter

#: Entries whose norm is taken in one go in float32: longer runs of additions lose digits of equal entries.
RUN: Final = 256
#: Norms of runs between which their squares keep their digits.
_RANGE: Final = (1e-15, 1e15)


def run_norms(tensor: Tensor) -> Tensor:
    """Return the Euclidean norm of each run of 256 entries, in float32 or, for a float64 tensor, float64."""
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    flat = tensor.reshape(-1)
    whole = flat.numel() // RUN * RUN
    if whole == flat.numel():
        return vector_norm(flat.view(-1, RUN), dim=-1, dtype=dtype)
    rest = vector_norm(flat[whole:], dtype=dtype).reshape(1)
    return torch.cat([vector_norm(flat[:whole].view(-1, RUN), dim=-1, dtype=dtype), rest]) if whole else rest


def sizes_of(tensors: Sequence[Tensor], parts: Sequence[Parameter]) -> tuple[np.ndarray, dict[int, str]]:
    """Return of parts of tensors the numbers of entries, sums of squares of the finite ones, and how many are not.

    And, by their places, why the numbers of some cannot be read: none of their entries counts as finite.

    Args:
        tensors: parameters or gradients.
        parts: which part of each.
    """
    sizes = np.zeros((len(tensors), 3))
    # Compiled code knows no other axis than the first.
    places: list[tuple[int, ...] | None] = [() if part.axis else part.rows for part in parts]
    sizes[:, :2] = native_sizes([*tensors], places)
    rest = np.flatnonzero(np.isnan(sizes[:, 1])).tolist()
    usual = [index for index in rest if is_usual(tensors[index])]
    pieces = [part_of(tensors[index], parts[index]) for index in usual]
    sizes[usual, 0], sizes[usual, 1] = [piece.numel() for piece in pieces], 0
    for device in {piece.device for piece in pieces}:
        here = {
            index: piece for index, piece in zip(usual, pieces, strict=True) if piece.device == device and piece.numel()
        }
        sizes[[*here], 1:] = _sizes_by_runs([*here.values()])
    reasons = {
        index: TOO_SMALL for index, piece in zip(usual, pieces, strict=True) if _is_small(piece, sizes[index, 1])
    }
    for index in reasons:
        sizes[index, 1:] = 0, sizes[index, 0]
    for index in sorted(set(rest).difference(usual)):
        sizes[index], reason = odd_size(tensors[index], parts[index])
        if reason:
            reasons[index] = reason
    return sizes, reasons


def _is_small(piece: Tensor, squares: float) -> bool:
    """Say whether all entries are so small that their squares say nothing, and not all of them zero."""
    return piece.dtype == torch.float64 and bool(squares < SMALLEST**2) and bool(piece.any())


def _sizes_by_runs(tensors: Sequence[Tensor]) -> np.ndarray:
    """Return sums of squares and numbers of entries that are not finite; norms of short runs are added in float64."""
    if not tensors:
        return np.empty((0, 2))
    norms = [run_norms(tensor) for tensor in tensors]
    runs = torch.cat(norms).double().cpu().numpy()
    starts = np.cumsum([0, *(norm.numel() for norm in norms[:-1])])
    low, high = _RANGE
    with np.errstate(all="ignore"):
        squares = np.add.reduceat(runs * runs, starts)
        bad = np.add.reduceat(~((runs > low) & (runs < high)), starts)
    return np.array(
        [
            careful_size(tensor) if odd else (square, 0)
            for tensor, square, odd in zip(tensors, squares, bad, strict=True)
        ]
    )
