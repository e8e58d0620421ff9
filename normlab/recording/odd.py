"""The sizes of parameters and gradients that are no dense real numbers, and why some have none."""

from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from normlab.recording.plan import Parameter

#: Entries that are put into float64 in one go.
PIECE: Final = 64 * 256
#: Why a tensor has no value whose storage holds less than its entries.
FREED: Final = "its memory was freed"
#: Why there is no value where all entries are finite, and none of them is above :data:`SMALLEST`.
TOO_SMALL: Final = "too small to be squared in float64"
#: The square of a smaller number loses bits in float64, or all of it.
SMALLEST: Final = 1e-150

_PLAIN: Final = (Tensor, nn.Parameter)
_USUAL: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def is_usual(tensor: Tensor) -> bool:
    """Say whether a tensor is of dense real numbers that torch reduces as they are, in memory that is there."""
    return _is_dense(tensor) and tensor.dtype in _USUAL and not (tensor.is_meta or is_freed(tensor))


def is_freed(tensor: Tensor) -> bool:
    """Say whether the storage of a dense tensor holds less than its entries, as after ``resize_(0)``."""
    if tensor.is_meta or not tensor.numel():
        return False
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.untyped_storage().nbytes() < (tensor.storage_offset() + extent) * tensor.itemsize


def unreadable(tensor: Tensor) -> str:
    """Say why the numbers of a tensor cannot be read where that can be known without trying, or nothing."""
    # What is spread over processes would have to be gathered, for which all of them would have to be here.
    if tensor.is_meta or (
        type(tensor) not in _PLAIN and (hasattr(tensor, "device_mesh") or hasattr(tensor, "fake_mode"))
    ):
        return _refused(tensor)
    return FREED if _is_dense(tensor) and is_freed(tensor) else ""


def silent(tensor: Tensor) -> str:
    """Say why nothing can be read of a tensor of a class of its own, which raises where others answer, or nothing."""
    if type(tensor) in _PLAIN:
        return ""
    try:
        for name in ("dtype", "layout", "is_nested", "is_meta", "shape", "requires_grad", "device"):
            getattr(tensor, name)
        for name in ("is_floating_point", "dim", "numel", "detach", "is_inference"):
            getattr(tensor, name)()
    except Exception:  # whatever its author chose
        return _refused(tensor)
    return ""


def part_of(tensor: Tensor, part: Parameter) -> Tensor:
    """Return the rows of a packed parameter that have the role of ``part``, or all of them."""
    return tensor if part.rows is None else tensor.narrow(part.axis, part.rows[0], part.rows[1] - part.rows[0])


def stored(tensor: Any, part: Parameter) -> tuple[Tensor, Parameter]:
    """Return the entries of a part of a tensor that are stored, and which part of these is meant."""
    if not tensor.is_sparse:
        return tensor, part
    tensor = tensor.coalesce()
    if part.rows is None or part.axis >= tensor.sparse_dim():
        return tensor.values(), part
    places, (start, stop) = tensor.indices()[part.axis], part.rows
    return tensor.values()[(places >= start) & (places < stop)], replace(part, rows=None)


def odd_size(tensor: Tensor, part: Parameter) -> tuple[tuple[int, float, int], str]:
    """Return what :func:`~normlab.recording.runs.sizes_of` has of a tensor, and why its numbers cannot be read.

    Where they cannot, none of its entries counts as finite.

    Args:
        tensor: a parameter or a gradient of any kind.
        part: which part of it.
    """
    entries = 0
    try:
        entries = _entries(tensor, part)
        if reason := unreadable(tensor):
            return (entries, 0.0, entries), reason
        dense = tensor if tensor.layout is torch.strided else tensor.to_sparse_coo()
        return (entries, *careful_size(part_of(*stored(dense, part)))), ""
    except Exception:  # A subclass of a tensor refuses with whatever its author chose.
        return (entries, 0.0, entries), _refused(tensor)


def careful_size(tensor: Tensor) -> tuple[float, int]:
    """Return the sum of the squared absolute values of the finite entries in float64, and how many are not."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    squares, nonfinite = 0.0, 0
    for piece in tensor.reshape(-1).split(PIECE):
        numbers = piece.to(wide)
        finite = numbers.isfinite()
        nonfinite += int((~finite).sum())
        squares += float(numbers.where(finite, 0.0).abs().square().sum())
    return squares, nonfinite


def _is_dense(tensor: Tensor) -> bool:
    return type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested


def _entries(tensor: Tensor, part: Parameter) -> int:
    if part.rows is None:
        return tensor.numel()
    return tensor.numel() // max(tensor.shape[part.axis], 1) * (part.rows[1] - part.rows[0])


def _refused(tensor: Tensor) -> str:
    if is_lazy(tensor):
        what = "not initialised"
    elif type(tensor) not in _PLAIN:
        what = type(tensor).__name__
    else:
        what = "meta" if tensor.is_meta else str(tensor.dtype).removeprefix("torch.")
    return f"its numbers cannot be read: {what}"
