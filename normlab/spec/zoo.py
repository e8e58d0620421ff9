"""What a spec can be made of, as a list: every registered norm, placement, initialisation and activation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from normlab.activations import ACTIVATIONS, Activation
from normlab.inits import INITS
from normlab.norms import NORMS
from normlab.placements import PLACEMENTS

#: Kinds of entries, each with the field of a spec that takes its names.
KINDS: Final = ("placement", "norm", "init", "activation")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a registry.

    Attributes:
        kind: one of :data:`KINDS`.
        name: the value of the spec's field ``kind``.
        equation: what it is.
        source: where it was published; empty where nothing was.
        options: its options and their defaults.
    """

    kind: str
    name: str
    equation: str
    source: str
    options: tuple[tuple[str, object], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        return {"name": self.name, "equation": self.equation, "source": self.source, "options": dict(self.options)}


def entries() -> Iterator[Entry]:
    """Yield every registered entry, yours too, by kind and in alphabetical order."""
    registries: dict[str, Any] = {"placement": PLACEMENTS, "norm": NORMS, "init": INITS, "activation": ACTIVATIONS}
    for kind in KINDS:
        for name, found in sorted(registries[kind].items()):
            yield Entry(
                kind=kind,
                name=name,
                equation=_equation(found),
                source=getattr(found, "source", ""),
                options=tuple(getattr(found, "options", {}).items()),
            )


def _equation(found: Any) -> str:
    if not isinstance(found, Activation):
        return str(found.equation)
    gated = "(W_up z) ⊙ φ(W_gate z),  " if found.gated else ""
    return f"{gated}φ(z) = {found.equation}"
