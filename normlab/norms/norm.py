"""What a norm is to the rest of normlab: a name, an equation and a way to build the module."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from normlab.options import keyword_options
from normlab.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalization that a model can be built with.

    Attributes:
        name: the value of ``ModelSpec.norm``.
        equation: what it computes for one token x of width d.
        source: where it was published.
        build: ``build(width, eps=..., **options)`` returns the module; its keyword-only parameters
            beyond ``eps`` are the norm's options. The module maps ``[*, width]`` to the same shape and
            names its parameters ``gain`` and ``bias``.
        properties: what holds for the norm without gain and bias, for claims and theory to read.
    """

    name: str
    equation: str
    source: str
    build: Callable[..., nn.Module]
    properties: frozenset[str] = field(default_factory=frozenset)

    @property
    def options(self) -> Mapping[str, object]:
        """The norm's options and their defaults."""
        return keyword_options(self.build, leave_out=("eps",))


NORMS: Registry[Norm] = Registry("norm")


def register_norm(norm: Norm, *, replace: bool = False) -> Norm:
    """Add a norm of your own; ``ModelSpec(norm=...)`` and every command then know it by its name.

    Raises:
        NormlabError: another norm has that name and ``replace`` is false.
    """
    return NORMS.register(norm, replace=replace)
