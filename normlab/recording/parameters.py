"""Gradients and sizes of parameters by role, read when the last backward pass is done."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from normlab.errors import RecordingError, suggest
from normlab.recording.native import native_squares
from normlab.recording.plan import Address, Parameter
from normlab.recording.runs import RUN, part_of, run_norms
from normlab.recording.tensors import dtype_name, version

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


class Parameters:
    """The parameters of a plan where they stand in a model: found once, read after every backward pass.

    Args:
        model: the model.
        parameters: the plan's parameters.

    Raises:
        RecordingError: the plan names a parameter that the model does not have.
    """

    def __init__(self, model: nn.Module, parameters: Sequence[Parameter]) -> None:
        owners = [(path, module._parameters) for path, module in model.named_modules(remove_duplicate=False)]
        places = {f"{path}.{key}" if path else key: (owner, key) for path, owner in owners for key in owner.keys()}
        for parameter in parameters:
            if parameter.name not in places:
                raise RecordingError(
                    f"the site plan names the parameter {parameter.name!r}, which the model does not have: "
                    f"give a name from model.named_parameters(){suggest(parameter.name, places)}"
                )
        self._planned = parameters
        self._places = [places[parameter.name] for parameter in parameters]
        self._all = {(id(owner), key): (name, owner, key) for name, (owner, key) in places.items()}.values()
        numbers: dict[tuple[Address, str], int] = {}
        self._members: list[list[int]] = []
        for parameter in parameters:
            groups = [(parameter.address, role) for role in ((parameter.role, "all") if parameter.role else ("",))]
            self._members.append([numbers.setdefault(group, len(numbers)) for group in groups])
        self._groups = list(numbers)
        self._roles: dict[tuple[int, torch.dtype], Role] = {}

    def tensors(self) -> list[Tensor]:
        """Return the plan's parameters as they are now."""
        return [owner[key] for owner, key in self._places]

    def stale(self) -> str:
        """Return the name of a parameter that already has a gradient other than zero, or nothing."""
        for name, owner, key in self._all:
            gradient = None if owner[key] is None else owner[key].grad
            if gradient is not None and bool(_values(gradient).any()):
                return name
        return ""

    def changed(self, before: Sequence[int]) -> str:
        """Return the name of a parameter whose number of changes is not that of ``before``, or nothing."""
        for parameter, tensor, number in zip(self._planned, self.tensors(), before, strict=True):
            if version(tensor) != number:
                return parameter.name
        return ""

    def measure(self, loss_scale: float) -> dict[Role, RoleSums]:
        """Return the sums of every role, and of role ``all`` of each sub-layer, after the last backward pass.

        Args:
            loss_scale: what gradients are divided by.
        """
        tensors = self.tensors()
        gradients = [tensor.grad for tensor in tensors]
        with torch.no_grad():
            values = [part_of(tensor, part) for tensor, part in zip(tensors, self._planned, strict=True)]
            pairs = zip(gradients, self._planned, strict=True)
            found = [part_of(_values(gradient), part) for gradient, part in pairs if gradient is not None]
            sizes = iter(_sizes(values + found))
        own = [next(sizes) for _ in tensors]
        of_gradients = [None if gradient is None else next(sizes) for gradient in gradients]
        sums: dict[tuple[int, torch.dtype], RoleSums] = {}
        for index, (tensor, size, gradient) in enumerate(zip(tensors, own, of_gradients, strict=True)):
            reason = "" if gradient else "no gradient" if tensor.requires_grad else "frozen"
            one = _role_sums(size, gradient, loss_scale)
            for group in self._members[index]:
                if reason:
                    phrase = f"{self._planned[index].role} ({reason})" if self._groups[group][1] == "all" else reason
                    one = one._replace(without=(phrase,))
                key = group, tensor.dtype
                sums[key] = sums[key] + one if key in sums else one
        return {self._role(*key): one for key, one in sums.items()}

    def _role(self, group: int, dtype: torch.dtype) -> Role:
        """Return what a group is called outside; the same object after every step."""
        if (group, dtype) not in self._roles:
            self._roles[group, dtype] = Role(*self._groups[group], dtype_name(dtype))
        return self._roles[group, dtype]


def _role_sums(size: "Size", gradient: "Size | None", loss_scale: float) -> RoleSums:
    if gradient is None:
        return RoleSums(size.entries, size.squares, broken=size.nonfinite)
    squares = gradient.squares / loss_scale**2
    return RoleSums(size.entries, size.squares, size.entries, squares, gradient.nonfinite, (), size.nonfinite)


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
