"""The sizes of parameters in float64, by compiled code or from the norms of short runs of their entries."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm

from normlab.recording.native import native_sizes
from normlab.recording.plan import Parameter

#: Entries whose norm is taken in one go in float32: longer runs of additions lose digits of equal entries.
RUN: Final = 256
#: Norms of runs between which their squares keep their digits.
_RANGE: Final = (1e-15, 1e15)


def part_of(tensor: Tensor, part: Parameter) -> Tensor:
    """Return the rows of a packed parameter that have the role of ``part``, or all of them."""
    return tensor if part.rows is None else tensor.narrow(part.axis, part.rows[0], part.rows[1] - part.rows[0])


def run_norms(tensor: Tensor) -> Tensor:
    """Return the Euclidean norm of each run of 256 entries, in float32 or, for a float64 tensor, float64."""
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    flat = tensor.reshape(-1)
    whole = flat.numel() // RUN * RUN
    if whole == flat.numel():
        return vector_norm(flat.view(-1, RUN), dim=-1, dtype=dtype)
    rest = vector_norm(flat[whole:], dtype=dtype).reshape(1)
    return torch.cat([vector_norm(flat[:whole].view(-1, RUN), dim=-1, dtype=dtype), rest]) if whole else rest


def sizes_of(tensors: Sequence[Tensor], parts: Sequence[Parameter]) -> np.ndarray:
    """Return of parts of tensors the numbers of entries, sums of squares of the finite ones, and how many are not.

    Args:
        tensors: parameters or gradients.
        parts: which part of each.
    """
    sizes = np.zeros((len(tensors), 3))
    # Compiled code knows no other axis than the first.
    sizes[:, :2] = native_sizes([*tensors], [() if part.axis else part.rows for part in parts])
    rest = np.flatnonzero(np.isnan(sizes[:, 1])).tolist()
    pieces = [part_of(tensors[index], parts[index]) for index in rest]
    sizes[rest, 0], sizes[rest, 1] = [piece.numel() for piece in pieces], 0
    full = [index for index in rest if sizes[index, 0]]
    sizes[full, 1:] = _sizes_by_runs([piece for piece in pieces if piece.numel()])
    return sizes


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
            _careful_size(tensor) if odd else (square, 0)
            for tensor, square, odd in zip(tensors, squares, bad, strict=True)
        ]
    )


def _careful_size(tensor: Tensor) -> tuple[float, int]:
    squares, nonfinite = 0.0, 0
    for piece in tensor.reshape(-1).split(64 * RUN):
        wide = piece.double()
        finite = wide.isfinite()
        nonfinite += int((~finite).sum())
        squares += float(wide.where(finite, 0.0).square().sum())
    return squares, nonfinite
