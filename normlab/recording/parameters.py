"""Gradients and sizes of parameters by role, read when the last backward pass is done."""

from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from normlab.errors import RecordingError, suggest
from normlab.recording.native import versions
from normlab.recording.odd import stored
from normlab.recording.plan import Address, Parameter
from normlab.recording.runs import sizes_of
from normlab.recording.tensors import dtype_name
from normlab.recording.tree import Tree


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
    """The parameters of a plan where they stand in a model, read after every backward pass.

    They are found once, and again when a module has been replaced.

    Args:
        model: the model.
        parameters: the plan's parameters.
        tree: the model's modules and parameters as they are now, where somebody has them already.

    Raises:
        RecordingError: the plan names a parameter, or places of one, that the model does not have.
    """

    def __init__(self, model: nn.Module, parameters: Sequence[Parameter], tree: Tree | None = None) -> None:
        self._model, self._planned = model, parameters
        self._grouping = Grouping(parameters)
        self._find(tree or Tree.of(model))
        found = self._tensors()
        for parameter, tensor in zip(parameters, found, strict=True):
            _check_places(parameter, tensor)
        self._held = _counted(found)

    def _find(self, tree: Tree) -> None:
        """Find out where the parameters stand."""
        self._children = [module._modules for module in tree.modules.values()]
        # Modules may say that they equal others: it is which ones they are that counts.
        self._before = [[*children.values()] for children in self._children]
        self._owners = [(module, module._parameters) for module in tree.modules.values()]
        self._names = tree.places
        nowhere: tuple[dict[str, Tensor | None], str] = {}, ""
        self._places = [tree.places.get(parameter.name, nowhere) for parameter in self._planned]

    def _find_again(self) -> None:
        """Find out anew where the parameters stand if a module, or all that a module has, has been replaced."""
        # A scripted module gives another object each time, which shows the same ones.
        if not all(map(_same_ones, self._children, self._before)) or any(
            module._parameters is not owner and type(owner) is dict for module, owner in self._owners
        ):
            self._find(Tree.of(self._model))

    def _standing(self) -> list[Tensor | None]:
        """Return the plan's parameters as they are now, and ``None`` for one that is gone."""
        self._find_again()
        # A scripted module's parameters are no dictionary.
        return [owner[key] if key in owner else None for owner, key in self._places]

    def _tensors(self) -> list[Tensor]:
        """Return the plan's parameters as they are now, refused where one is not there."""
        found: list[Tensor] = []
        for parameter, tensor in zip(self._planned, self._standing(), strict=True):
            if tensor is None:
                raise RecordingError(
                    f"the site plan names the parameter {parameter.name!r}, which the model does not have: "
                    f"give a name from model.named_parameters(){suggest(parameter.name, self._names)}"
                )
            found.append(tensor)
        return found

    def every(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the model's parameters by name as they stood last, also those that the plan does not name."""
        for name, (owner, key) in self._names.items():
            if key in owner and (parameter := owner[key]) is not None:
                yield name, parameter

    def stale(self) -> str:
        """Return the name of a parameter that already has a gradient other than zero, or nothing."""
        seen: set[int] = set()
        for name, parameter in self.every():
            if parameter.grad is None or id(parameter) in seen:
                continue
            if bool(_values(parameter.grad).any()):
                return name
            seen.add(id(parameter))
        return ""

    def hold(self) -> None:
        """Let the parameters that stand in the model now be those whose changes are counted."""
        self._held = _counted(self._standing())

    def versions(self) -> list[int]:
        """Return how often each of the held parameters was changed in place so far.

        Not those that stand in the model now: ``functional_call`` puts others there for the length of a call.
        """
        return versions(self._held)

    def changed(self, before: Sequence[int]) -> str:
        """Return the name of a parameter whose number of changes is not that of ``before``, or nothing."""
        for parameter, now, number in zip(self._planned, self.versions(), before, strict=True):
            if now != number:
                return parameter.name
        return ""

    def measure(self, loss_scale: float) -> Measured:
        """Read the parameters and their gradients after the last backward pass.

        Args:
            loss_scale: what gradients are divided by.
        """
        tensors = self._tensors()
        gradients = [tensor.grad for tensor in tensors]
        there = [index for index, gradient in enumerate(gradients) if gradient is not None]
        with torch.no_grad():
            found = [stored(gradients[index], self._planned[index]) for index in there]
            sizes, reasons = sizes_of(
                [*tensors, *(one for one, _ in found)], [*self._planned, *(part for _, part in found)]
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
        every[[*unread], 3:] = 0
        own = {index: reason for index, reason in reasons.items() if index < len(tensors)}
        return Measured(self._grouping, tuple(tensor.dtype for tensor in tensors), every, without | unread, own)


def _same_ones(children: Any, before: Sequence[nn.Module | None]) -> bool:
    # Those of a scripted module are no dictionary.
    return len(children) == len(before) and all(map(is_, children.values(), before))


def _counted(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return the tensors whose changes torch counts; ``None`` for a parameter of a lazy module that has not run."""
    return [None if tensor is None or is_lazy(tensor) else tensor for tensor in tensors]


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
