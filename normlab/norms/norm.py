"""What a norm is to the rest of normlab: a name, an equation and a way to build the module."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from torch import nn

from normlab.errors import unknown_name
from normlab.options import as_declared, check_options, keyword_options
from normlab.registry import Registry

#: What can hold for a norm N without gain and bias and with ε = 0, its statistics taken from its input.
#: k > 0 and c are numbers, one for all tokens; where N is per-token, also one a token.
PROPERTIES: Final[Mapping[str, str]] = {
    "per-token": "a token's result depends on that token alone",
    "pointwise": "an entry of the result depends on that entry of the input alone",
    "scale-invariant": "N(k x) = N(x)",
    "shift-invariant": "N(x + c 1) = N(x)",
    "feature-scale-invariant": "N(k ⊙ x) = N(x), with one k a feature",
    "feature-shift-invariant": "N(x + c) = N(x), with one c a feature",
}


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalization that a model can be built with.

    Attributes:
        name: the value of ``ModelSpec.norm``.
        equation: what it computes for one token x of width d.
        source: where it was published.
        build: ``build(width, eps=..., **options)`` returns the module; its keyword-only parameters
            beyond ``eps`` and ``backend`` are the norm's options. The module maps ``[*, width]`` to the same shape and
            names its parameters ``gain`` and ``bias``.
        properties: which of :data:`PROPERTIES` hold, for models, claims and theory to read.

    Raises:
        UnknownNameError: a property that :data:`PROPERTIES` does not define.
    """

    name: str
    equation: str
    source: str
    build: Callable[..., nn.Module]
    properties: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        for name in self.properties:
            if name not in PROPERTIES:
                raise unknown_name("property of a norm", name, PROPERTIES)

    @property
    def options(self) -> Mapping[str, object]:
        """The norm's options and their defaults."""
        return keyword_options(self.build, leave_out=("eps", "backend"))

    def make(self, width: int, *, eps: float, **options: object) -> nn.Module:
        """Build the module for ``width`` features.

        Raises:
            SpecError: an option that the norm does not have, or a value that it cannot take.
        """
        check_options(f"norm {self.name!r}", self.options, options)
        return self.build(width, eps=float(eps), **as_declared(self.options, options))


NORMS: Registry[Norm] = Registry("norm")


def register_norm(norm: Norm, *, replace: bool = False) -> Norm:
    """Add a norm of your own; ``ModelSpec(norm=...)`` and every command then know it by its name.

    Raises:
        NormlabError: another norm has that name and ``replace`` is false.
    """
    return NORMS.register(norm, replace=replace)
