"""The modules and parameters of a model by name, found in one walk."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn


class Tree(NamedTuple):
    """The modules and parameters of a model as they stood at one moment.

    Attributes:
        modules: every module by its path; one that stands in several places is there under each of them.
        places: for each parameter by its name, the dictionary that it stands in and its key there.
    """

    modules: dict[str, nn.Module]
    places: dict[str, tuple[Mapping[str, Tensor | None], str]]

    @classmethod
    def of(cls, model: nn.Module) -> "Tree":
        """Return the tree of a model."""
        tree = cls({}, {})
        tree._add("", "", model)
        return tree

    def numbered(self) -> dict[str, int]:
        """Return a number for each parameter by its name, the same one for the same parameter."""
        numbers: dict[int, int] = {}
        return {
            name: numbers.setdefault(id(parameter), len(numbers))
            for name, (owner, key) in self.places.items()
            if (parameter := owner[key]) is not None
        }

    def _add(self, path: str, start: str, module: Any) -> None:
        # Several times as fast as named_modules(), whose generators hand each module on through all levels.
        self.modules[path] = module
        # A scripted module's parameters are no dictionary.
        if owner := module._parameters:
            for key in owner.keys():
                self.places[start + key] = owner, key
        for key, child in module._modules.items():
            if child is not None:
                inside = start + key
                self._add(inside, f"{inside}.", child)
