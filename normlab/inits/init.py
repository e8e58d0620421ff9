"""An initialisation recipe: the standard deviation of every matrix, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from normlab.options import keyword_options
from normlab.registry import Registry
from normlab.where import Where


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A weight matrix that is to be filled.

    Attributes:
        role: ``q``, ``k``, ``v``, ``o``, ``up``, ``gate``, ``down`` or ``head``.
        fan_in: number of its inputs.
        fan_out: number of its outputs.
        where: the sub-layer that it belongs to; ``None`` for the head.
    """

    role: str
    fan_in: int
    fan_out: int
    where: Where | None


@dataclass(frozen=True, kw_only=True)
class EmbeddingScale:
    """How an embedding starts.

    Attributes:
        std: standard deviation of its entries.
        multiplier: what looked-up rows are multiplied by before they enter the stream.
    """

    std: float
    multiplier: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Init:
    """An initialisation recipe. Entries are independent with mean 0; biases start at 0.

    Attributes:
        name: the value of ``ModelSpec.init``.
        equation: the standard deviations, in words and symbols.
        source: where it was published.
        std: ``std(matrix, **options)`` returns the standard deviation of a matrix's entries; its
            keyword-only parameters are the recipe's options.
        embedding: ``embedding(width, tied, where)`` returns how the embedding starts; ``where`` is the
            address of the first sub-layer.
        law: distribution of a matrix: Gaussian, or a scaled random orthogonal matrix with the same
            root mean square.
    """

    name: str
    equation: str
    source: str
    std: Callable[..., float]
    embedding: Callable[[int, bool, Where], EmbeddingScale]
    law: Literal["gaussian", "orthogonal"] = "gaussian"

    @property
    def options(self) -> Mapping[str, object]:
        """The recipe's options and their defaults."""
        return keyword_options(self.std)


INITS: Registry[Init] = Registry("init")


def register_init(init: Init, *, replace: bool = False) -> Init:
    """Add an initialisation recipe of your own; ``ModelSpec(init=...)`` then knows it by its name.

    Raises:
        NormlabError: another recipe has that name and ``replace`` is false.
    """
    return INITS.register(init, replace=replace)
