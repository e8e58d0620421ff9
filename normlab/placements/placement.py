"""A placement: what sits where around the sub-layers of a model, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from normlab.options import keyword_options
from normlab.placements.wiring import Wiring
from normlab.registry import Registry
from normlab.where import Where


@dataclass(frozen=True, kw_only=True)
class Placement:
    """How norms, skips and scales are placed around every sub-layer.

    Attributes:
        name: the value of ``ModelSpec.placement``.
        equation: one sub-layer's update of the stream x, with norm N and sub-layer F.
        source: where it was published.
        wiring: the switches of every sub-layer; where they depend on its address, a function
            ``wiring(where, **options)`` whose keyword-only parameters are the placement's options.
        final_norm: whether a norm stands after the last block unless the spec says otherwise.
        embed_norm: whether a norm stands after the embedding unless the spec says otherwise.
    """

    name: str
    equation: str
    source: str
    wiring: Wiring | Callable[..., Wiring]
    final_norm: bool
    embed_norm: bool = False

    @property
    def options(self) -> Mapping[str, object]:
        """The placement's options and their defaults."""
        return keyword_options(self.wiring)

    def at(self, where: Where, **options: object) -> Wiring:
        """Return the switches of the sub-layer at ``where``."""
        return self.wiring if isinstance(self.wiring, Wiring) else self.wiring(where, **options)


PLACEMENTS: Registry[Placement] = Registry("placement")


def register_placement(placement: Placement, *, replace: bool = False) -> Placement:
    """Add a placement of your own; models, sweeps and commands then know it by its name.

    Raises:
        NormlabError: another placement has that name and ``replace`` is false.
    """
    return PLACEMENTS.register(placement, replace=replace)
