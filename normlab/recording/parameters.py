"""Gradients and sizes of parameters by role, read when the last backward pass is done."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from normlab.errors import RecordingError, suggest
from normlab.recording.odd import stored
from normlab.recording.plan import Address, Parameter
from normlab.recording.runs import sizes_of
from normlab.recording.standing import Standing
from normlab.recording.tensors import dtype_name
from normlab.recording.tree import Tree

#: Why a parameter has no value that stood in the model when the recorder was made.
GONE: Final = "no longer in the model"
#: Why a gradient has no value although there was one.
REPLACED: Final = "another parameter has come in the place of the one that got the gradient"

_NOTHING: Final = torch.empty(0, dtype=torch.float32, device="cpu")


class Role(NamedTuple):
    """What the rows of a parameter are booked under."""

    address: Address
    role: str
    dtype: str


class RoleSums(NamedTuple):
    """Everything that the rows of one role follow from.

    Attributes:
        entries: number of entries of the parameters.
        squares: sum of squares of the finite ones.
        gradient_entries: number of entries that have a gradient.
        gradient_squares: sum of squares of the finite ones.
        nonfinite: entries of the gradient that are NaN or infinite.
        without: what has no gradient: a reason, after the role's name where several roles are together.
        broken: entries of the parameters that are NaN or infinite, or cannot be read.
        unread: why parameters cannot be read, as in ``without``.
    """

    entries: int
    squares: float
    gradient_entries: int = 0
    gradient_squares: float = 0.0
    nonfinite: int = 0
    without: tuple[str, ...] = ()
    broken: int = 0
    unread: tuple[str, ...] = ()


class Grouped(NamedTuple):
    """The roles, and pairs of a role's and a parameter's number, one for each that belong together."""

    roles: tuple[Role, ...]
    groups: np.ndarray
    members: np.ndarray


class Grouping:
    """Says which roles the parameters of a plan have, when somebody asks.

    Attributes:
        planned: the plan's parameters.
    """

    def __init__(self, planned: Sequence[Parameter]) -> None:
        self.planned = planned
        self._last: tuple[tuple[torch.dtype, ...], Grouped] | None = None

    def of(self, dtypes: tuple[torch.dtype, ...]) -> Grouped:
        """Return the roles of parameters of these dtypes; the same objects for every step."""
        if self._last is None or self._last[0] != dtypes:
            numbers: dict[Role, int] = {}
            pairs = []
            for index, (parameter, dtype) in enumerate(zip(self.planned, dtypes, strict=True)):
                for role in (parameter.role, "all") if parameter.role else ("",):
                    key = Role(parameter.address, role, dtype_name(dtype))
                    pairs.append((numbers.setdefault(key, len(numbers)), index))
            groups, members = np.array(pairs, np.intp).reshape(-1, 2).T
            self._last = dtypes, Grouped(tuple(numbers), groups, members)
        return self._last[1]


class Measured(NamedTuple):
    """What was measured of the parameters in one step, before anybody looks at it.

    Attributes:
        grouping: says which roles there are.
        dtypes: the dtype of each parameter.
        sizes: for each parameter what :class:`RoleSums` has, without reasons, ``[parameter, number]``.
        without: why parameters have no gradient, by their places.
        unread: why parameters cannot be read, by their places.
    """

    grouping: Grouping
    dtypes: tuple[torch.dtype, ...]
    sizes: np.ndarray
    without: dict[int, str]
    unread: dict[int, str]

    def by_role(self) -> dict[Role, RoleSums]:
        """Return the sums of every role, and of role ``all`` of each sub-layer."""
        grouped = self.grouping.of(self.dtypes)
        sums = np.zeros((len(grouped.roles), 6))
        without, unread = self._reasons(grouped, self.without), self._reasons(grouped, self.unread)
        np.add.at(sums, grouped.groups, self.sizes[grouped.members])
        return {
            role: RoleSums(
                int(own),
                squares,
                int(entries),
                squared,
                int(bad),
                without.get(role, ()),
                int(broken),
                unread.get(role, ()),
            )
            for role, (own, squares, broken, entries, squared, bad) in zip(grouped.roles, sums.tolist(), strict=True)
        }

    def _reasons(self, grouped: Grouped, reasons: dict[int, str]) -> dict[Role, tuple[str, ...]]:
        """Return the reasons by role, after the parameter's own role where several are together."""
        found: dict[Role, dict[str, None]] = {}
        for group, member in zip(grouped.groups.tolist(), grouped.members.tolist(), strict=True):
            if reason := reasons.get(member):
                role = grouped.roles[group]
                phrase = f"{self.grouping.planned[member].role} ({reason})" if role.role == "all" else reason
                found.setdefault(role, {})[phrase] = None
        return {role: tuple(phrases) for role, phrases in found.items()}


class Parameters:
    """The parameters of a plan, read after every backward pass.

    Args:
        model: the model.
        parameters: the plan's parameters.
        tree: the model's modules and parameters as they are now, where somebody has them already.

    Attributes:
        standing: where they stand in the model.

    Raises:
        RecordingError: the plan names a parameter, or places of one, that the model does not have.
    """

    def __init__(self, model: nn.Module, parameters: Sequence[Parameter], tree: Tree | None = None) -> None:
        self._planned = parameters
        self._grouping = Grouping(parameters)
        self.standing = Standing(model, [parameter.name for parameter in parameters], tree)
        for parameter, tensor in zip(parameters, self.standing.now(), strict=True):
            if tensor is None:
                raise RecordingError(
                    f"the site plan names the parameter {parameter.name!r}, which the model does not have: "
                    f"give a name from model.named_parameters(){suggest(parameter.name, self.standing.names)}"
                )
            _check_places(parameter, tensor)

    def stale(self) -> str:
        """Return the name of a parameter that already has a gradient other than zero, or nothing."""
        seen: set[int] = set()
        for name, parameter in self.standing.every():
            if not parameter.is_leaf or parameter.grad is None or id(parameter) in seen:
                continue
            if bool(_values(parameter.grad).any()):
                return name
            seen.add(id(parameter))
        return ""

    def measure(self, loss_scale: float) -> Measured:
        """Read the parameters and their gradients after the last backward pass.

        Args:
            loss_scale: what gradients are divided by.
        """
        found, held = self.standing.now(), self.standing.held
        gone = {index: GONE for index, tensor in enumerate(found) if tensor is None}
        tensors = [_NOTHING if tensor is None else tensor for tensor in found]
        parts = [replace(part, rows=None) if index in gone else part for index, part in enumerate(self._planned)]
        gradients = [tensor.grad for tensor in tensors]
        there = [index for index, gradient in enumerate(gradients) if gradient is not None]
        with torch.no_grad():
            entries = [stored(gradients[index], parts[index]) for index in there]
            sizes, reasons = sizes_of(
                [*tensors, *(one for one, _ in entries)], [*parts, *(part for _, part in entries)]
            )
        every = np.zeros((len(tensors), 6))
        every[:, :3] = sizes[: len(tensors)]
        every[there, 3:] = sizes[len(tensors) :]
        # Of a sparse gradient the entries that are not there are zero.
        every[there, 3] = every[there, 0]
        every[:, 4] /= loss_scale**2
        without = {
            index: "no gradient" if tensor.requires_grad else "frozen"
            for index, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True))
            if gradient is None
        }
        unread = {there[index - len(tensors)]: reason for index, reason in reasons.items() if index >= len(tensors)}
        lost = {
            index: REPLACED
            for index, (tensor, before) in enumerate(zip(found, held, strict=True))
            # What functional_call puts in a parameter's place for one call may be no leaf, and has no gradient.
            if tensor is not before and before is not None and before.is_leaf and before.grad is not None
        }
        every[[*unread, *lost], 3:] = 0
        own = {index: reason for index, reason in reasons.items() if index < len(tensors)}
        dtypes = tuple(tensor.dtype for tensor in tensors)
        return Measured(self._grouping, dtypes, every, without | unread | lost | gone, own | gone)


def _values(gradient: Any) -> Tensor:
    """Return the entries of a gradient that may be sparse."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _check_places(part: Parameter, tensor: Tensor) -> None:
    """Refuse places that a parameter does not have."""
    if part.rows is None:
        return
    start, stop = part.rows
    if not (0 <= part.axis < tensor.dim() and 0 <= start <= stop <= tensor.shape[part.axis]):
        raise RecordingError(
            f"the site plan names the places {start} to {stop} on axis {part.axis} of the parameter {part.name!r}, "
            f"whose shape is {tuple(tensor.shape)}: give its first and its last-plus-one place there"
        )
