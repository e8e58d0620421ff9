"""Gradients and sizes of parameters by role, read when the last backward pass is done."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from normlab.errors import RecordingError, suggest
from normlab.recording.native import native_squares
from normlab.recording.plan import Address, Parameter
from normlab.recording.runs import RUN, part_of, run_norms

#: Norms of runs between which their squares keep their digits.
_RANGE: Final = (1e-15, 1e15)


class Role(NamedTuple):
    """What the rows of a parameter are booked under."""

    address: Address
    role: str
    dtype: str


class Size(NamedTuple):
    """The number of entries of a tensor, the sum of squares of the finite ones, and how many are not."""

    entries: int
    squares: float
    nonfinite: int


class RoleSums(NamedTuple):
    """Everything that the rows of one role follow from.

    Attributes:
        entries: number of entries of the parameters.
        squares: sum of squares of the finite ones.
        gradient_entries: number of entries that have a gradient.
        gradient_squares: sum of squares of the finite ones.
        nonfinite: entries of the gradient that are NaN or infinite.
        without: what has no gradient: a reason, after the role's name where several roles are together.
        broken: entries of the parameters that are NaN or infinite.
    """

    entries: int
    squares: float
    gradient_entries: int = 0
    gradient_squares: float = 0.0
    nonfinite: int = 0
    without: tuple[str, ...] = ()
    broken: int = 0

    def __add__(self, other: "RoleSums") -> "RoleSums":  # type: ignore[override]
        """Return the sums over both sets of parameters."""
        return RoleSums(
            self.entries + other.entries,
            self.squares + other.squares,
            self.gradient_entries + other.gradient_entries,
            self.gradient_squares + other.gradient_squares,
            self.nonfinite + other.nonfinite,
            tuple(dict.fromkeys((*self.without, *other.without))) if self.without or other.without else (),
            self.broken + other.broken,
        )


def measure(model: nn.Module, parameters: Sequence[Parameter], loss_scale: float) -> dict[Role, RoleSums]:
    """Return the sums of every role, and of role ``all`` of each sub-layer.

    Args:
        model: the model, after the last backward pass.
        parameters: the plan's parameters.
        loss_scale: what gradients are divided by.

    Raises:
        RecordingError: the plan names a parameter that the model does not have.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    _check((parameter.name for parameter in parameters), named)
    tensors = [named[parameter.name] for parameter in parameters]
    gradients = [tensor.grad for tensor in tensors]
    with torch.no_grad():
        values = [part_of(tensor.detach(), part) for tensor, part in zip(tensors, parameters, strict=True)]
        found = [part_of(_values(g), part) for g, part in zip(gradients, parameters, strict=True) if g is not None]
        sizes = iter(_sizes(values + found))
        own = [next(sizes) for _ in tensors]
        of_gradients = [None if gradient is None else next(sizes) for gradient in gradients]
    result: dict[Role, RoleSums] = {}
    for parameter, tensor, size, gradient in zip(parameters, tensors, own, of_gradients, strict=True):
        dtype = str(tensor.dtype).removeprefix("torch.")
        reason = "" if gradient else "no gradient" if tensor.requires_grad else "frozen"
        for role in (parameter.role, "all") if parameter.role else ("",):
            where = f"{parameter.role} ({reason})" if role == "all" else reason
            sums = _role_sums(size, gradient, (where,) if reason else (), loss_scale)
            key = Role(parameter.address, role, dtype)
            result[key] = result[key] + sums if key in result else sums
    return result


def _role_sums(size: "Size", gradient: "Size | None", without: tuple[str, ...], loss_scale: float) -> RoleSums:
    if gradient is None:
        return RoleSums(size.entries, size.squares, without=without, broken=size.nonfinite)
    squares = gradient.squares / loss_scale**2
    return RoleSums(size.entries, size.squares, size.entries, squares, gradient.nonfinite, without, size.nonfinite)


def stale_gradient(model: nn.Module) -> str:
    """Return the name of a parameter that already has a gradient other than zero, or nothing."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and bool(_values(parameter.grad).any()):
            return name
    return ""


def _check(names: Iterable[str], allowed: dict[str, nn.Parameter]) -> None:
    for name in names:
        if name not in allowed:
            raise RecordingError(
                f"the site plan names the parameter {name!r}, which the model does not have: "
                f"give a name from model.named_parameters(){suggest(name, allowed)}"
            )


def _values(gradient: Tensor) -> Tensor:
    """Return the entries of a gradient that may be sparse."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _sizes(tensors: Sequence[Tensor]) -> list[Size]:
    """Return the size of each tensor."""
    sizes = {
        index: Size(tensor.numel(), float(squares), 0)
        for index, (tensor, squares) in enumerate(zip(tensors, native_squares(tensors), strict=True))
        if squares >= 0
    }
    rest = [index for index in range(len(tensors)) if index not in sizes]
    sizes |= zip(rest, _sizes_by_runs([tensors[index] for index in rest]), strict=True)
    return [sizes[index] for index in range(len(tensors))]


def _sizes_by_runs(tensors: Sequence[Tensor]) -> list[Size]:
    """Return the size of each tensor; norms of short runs are squared and added in float64."""
    if not tensors:
        return []
    norms = [run_norms(tensor) for tensor in tensors]
    runs = torch.cat(norms).double().cpu().numpy()
    starts = np.cumsum([0, *(norm.numel() for norm in norms[:-1])])
    low, high = _RANGE
    with np.errstate(all="ignore"):
        squares = np.add.reduceat(runs * runs, starts)
        bad = np.add.reduceat(~((runs > low) & (runs < high)), starts)
    return [
        _careful_size(tensor) if odd else Size(tensor.numel(), float(square), 0)
        for tensor, square, odd in zip(tensors, squares, bad, strict=True)
    ]


def _careful_size(tensor: Tensor) -> Size:
    squares, nonfinite = 0.0, 0
    for piece in tensor.reshape(-1).split(64 * RUN):
        wide = piece.double()
        finite = wide.isfinite()
        nonfinite += int((~finite).sum())
        squares += float(wide.where(finite, 0.0).square().sum())
    return Size(tensor.numel(), squares, nonfinite)
