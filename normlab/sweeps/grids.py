"""From axes to the specs of a sweep."""

from collections.abc import Iterable
from dataclasses import fields
from itertools import product
from typing import Any

from normlab.errors import SpecError, suggest
from normlab.spec import ModelSpec


def grid(**axes: Any) -> tuple[ModelSpec, ...]:
    """Return every combination of the axes as a spec, the last axis varying fastest.

    Args:
        **axes: a value or a list of values for each field of :class:`~normlab.spec.ModelSpec`. Only a
            list (or a range) is an axis: a tuple is one value, such as one placement a block.

    Returns:
        Validated specs without repetitions.

    Raises:
        SpecError: a field that a spec does not have, an empty list, or values that do not describe a model.
        UnknownNameError: a placement, norm, init, ... that is not registered.

    Example:
        >>> [(spec.placement, spec.depth) for spec in grid(placement=["pre", "post"], depth=[2, 4], width=8)]
        [('pre', 2), ('pre', 4), ('post', 2), ('post', 4)]
    """
    names = [field.name for field in fields(ModelSpec)]
    for name in axes:
        if name not in names:
            raise SpecError(f"a grid has no axis {name!r}: choose among {', '.join(names)}{suggest(name, names)}")
    for name in ("depth", "width"):
        if name not in axes:
            raise SpecError(f"a grid needs {name}: give a whole number or a list of them")
    values = [list(value) if isinstance(value, list | range) else [value] for value in axes.values()]
    for name, several in zip(axes, values, strict=True):
        if not several:
            raise SpecError(f"{name} is an empty list: give at least one value")
    combinations = (dict(zip(axes, chosen, strict=True)) for chosen in product(*values))
    return tuple(dict.fromkeys(ModelSpec(**combination) for combination in combinations))


def specs_of(given: ModelSpec | Iterable[ModelSpec]) -> tuple[ModelSpec, ...]:
    """Return what a sweep was given as specs without repetitions.

    Raises:
        SpecError: there is none, or something is not a spec.
    """
    specs = (given,) if isinstance(given, ModelSpec) else tuple(dict.fromkeys(given))
    if not specs:
        raise SpecError("a sweep needs at least one spec: give what grid returns")
    for spec in specs:
        if not isinstance(spec, ModelSpec):
            raise SpecError(f"a sweep takes specs and was given {spec!r}: give what grid returns")
    return specs
