"""What a spec's names stand for, as text that can be compared between processes.

A worker is a fresh process: it knows what normlab and the plugins register, and what a script registers
where it is imported, but nothing of a notebook. It must not measure another norm under the same name.
"""

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

from normlab.activations import ACTIVATIONS
from normlab.inits import INITS
from normlab.norms import NORMS
from normlab.placements import PLACEMENTS
from normlab.registry import Registry
from normlab.spec import ModelSpec


def definitions(spec: ModelSpec) -> dict[str, str]:
    """Return what each of the spec's names stands for here; empty where it is not registered."""
    placements = (spec.placement,) if isinstance(spec.placement, str) else tuple(dict.fromkeys(spec.placement))
    used: tuple[tuple[Registry[Any], str], ...] = (
        *((PLACEMENTS, name) for name in placements),
        (NORMS, spec.norm),
        (INITS, spec.init),
        (ACTIVATIONS, spec.activation),
    )
    return {
        f"{registry.what} {name!r}": describe(registry[name]) if name in registry else "" for registry, name in used
    }


def describe(value: object) -> str:
    """Describe an entry by its plain values and the names of its functions, the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{describe(key)}: {describe(item)}" for key, item in value.items())) + "}"
    if isinstance(value, Set):
        return "{" + ", ".join(sorted(map(describe, value))) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(describe, value)) + ")"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{field.name}={describe(getattr(value, field.name))}" for field in fields(value))
        return f"{_name(type(value))}({', '.join(parts)})"
    return _name(value)


def _name(value: object) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    # Worker processes import a script under the second name.
    module = str(getattr(named, "__module__", "")).replace("__mp_main__", "__main__")
    return f"{module}.{getattr(named, '__qualname__', '')}"
