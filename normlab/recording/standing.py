"""The parameters of a plan where they stand in a model, and whether they are still those that the first pass had."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from normlab.recording.native import marks
from normlab.recording.odd import unreadable
from normlab.recording.problems import is_hidden
from normlab.recording.tree import Tree

_PARAMETERS: Final = attrgetter("_parameters")


class Mark(NamedTuple):
    """What tells that a parameter was changed in place.

    Attributes:
        version: how often it was, as far as torch counts; -1 where it does not.
        size: how many bytes its entries take; 0 where they were not read.
        sampled: a number that some of its entries give, spread over all of it; 0 where they were not read.
    """

    version: int
    size: int
    sampled: int

    def differs(self, other: "Mark") -> bool:
        """Say whether the parameter was changed between two marks."""
        # Its entries may have gone and come, as where parameters are kept elsewhere while they are not needed, or be
        # those of another dtype.
        comparable = self.size == other.size and self.sampled and other.sampled
        return self.version != other.version or bool(comparable and self.sampled != other.sampled)


class Standing:
    """The parameters of a plan where they stand in a model; found once, and again when a module has been replaced.

    Args:
        model: the model.
        names: the names of the plan's parameters.
        tree: the model's modules and parameters as they are now, where somebody has them already.

    Attributes:
        held: the parameters that stood there when :meth:`hold` was called last; ``None`` for one that was not there,
            or is one of a lazy module that had not run.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], tree: Tree | None = None) -> None:
        self._model, self._planned = model, names
        self._find(tree or Tree.of(model))
        self.hold()

    @property
    def names(self) -> Mapping[str, Any]:
        """The names of all parameters of the model."""
        return self._names

    def _find(self, tree: Tree) -> None:
        """Find out where the parameters stand."""
        modules = tree.modules.values()
        self._children = [module._modules for module in modules]
        self._before = self._below()
        # A scripted module gives another object each time, which shows the same parameters.
        self._owning = [module for module in modules if isinstance(module._parameters, dict)]
        self._owners = [module._parameters for module in self._owning]
        self._names = tree.places
        nowhere: tuple[dict[str, Tensor | None], str] = {}, ""
        self._places = [tree.places.get(name, nowhere) for name in self._planned]

    def _below(self) -> tuple[list[int], list[nn.Module | None]]:
        """Return how many children each module has, and all of them."""
        # Those of a scripted module are no dictionary.
        return [*map(len, self._children)], [*chain.from_iterable(children.values() for children in self._children)]

    def _find_again(self) -> None:
        """Find out anew where the parameters stand if a module, or all that a module has, has been replaced."""
        (numbers, below), (numbers_before, before) = self._below(), self._before
        # Modules may say that they equal others: it is which ones they are that counts.
        if not (
            numbers == numbers_before
            and all(map(is_, below, before))
            and all(map(is_, map(_PARAMETERS, self._owning), self._owners))
        ):
            self._find(Tree.of(self._model))

    def now(self) -> list[Tensor | None]:
        """Return the plan's parameters as they are now, and ``None`` for one that is gone."""
        self._find_again()
        # A scripted module's parameters are no dictionary.
        return [owner[key] if key in owner else None for owner, key in self._places]

    def every(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the model's parameters by name as they stood last, also those that the plan does not name."""
        for name, (owner, key) in self._names.items():
            if key in owner and (parameter := owner[key]) is not None:
                yield name, parameter

    def hold(self) -> None:
        """Let the parameters that stand in the model now be those that others are compared with."""
        self.held = [None if one is None or is_lazy(one) else one for one in self.now()]

    def marks(self) -> list[tuple[int, int, int]]:
        """Return what tells that a held parameter was changed in place, as a :class:`Mark` has it.

        Not one that stands in the model now: ``functional_call`` puts others there for the length of a call.
        """
        return marks(self.held)

    def changed(self, before: Sequence[tuple[int, int, int]]) -> str:
        """Return the name of a parameter that is another one than the held one was, or nothing.

        Args:
            before: the marks of the held ones.
        """
        for name, mark, now in zip(self._planned, before, self.marks(), strict=True):
            if now != mark and Mark(*now).differs(Mark(*mark)):
                return name
        for name, held, there in zip(self._planned, self.held, self.now(), strict=True):
            if held is not there and _differ(held, there):
                return name
        return ""


def _differ(one: Tensor | None, other: Tensor | None) -> bool:
    """Say whether two parameters are known to have other entries."""
    if one is None or other is None or not (_is_comparable(one) and _is_comparable(other)):
        return False
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    with torch.no_grad():
        return not torch.allclose(one.to(other.device), other, rtol=0, atol=0, equal_nan=True)


def _is_comparable(tensor: Tensor) -> bool:
    dense = tensor.layout is torch.strided and not tensor.is_nested
    return type(tensor) in (Tensor, nn.Parameter) and dense and not (is_hidden(tensor) or unreadable(tensor))
