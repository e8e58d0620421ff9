"""Options of registered entries: the keyword-only parameters of the function that an entry carries."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TypeAlias, TypeGuard

from normlab.errors import SpecError, suggest

OptionValue: TypeAlias = bool | int | float | str
Options: TypeAlias = tuple[tuple[str, OptionValue], ...]


def keyword_options(function: object, *, leave_out: Iterable[str] = ()) -> dict[str, object]:
    """Return the keyword-only parameters of ``function`` and their defaults; none where it is not callable."""
    found = _keyword_defaults(function) if callable(function) else ()
    return {name: default for name, default in found if name not in leave_out}


# A deep model asks for the same signatures thousands of times.
@cache
def _keyword_defaults(function: Callable[..., object]) -> tuple[tuple[str, object], ...]:
    return tuple(
        (parameter.name, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    )


def check_options(owner: str, allowed: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Check that ``owner`` (such as ``norm 'rmsnorm'``) has every option in ``given``, of its default's kind.

    Raises:
        SpecError: it does not have one of them, or a value is of another kind.
    """
    for name, value in given.items():
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise SpecError(f"{owner} has no option {name!r}: its options are {names}{suggest(name, allowed)}")
        kind = _kind(allowed[name])
        # A whole number is a number too; True and False are neither.
        if kind and kind not in (_kind(value), "a number" if _kind(value) == "a whole number" else ""):
            raise SpecError(f"{owner} got {name}={value!r}: give {kind}, such as {allowed[name]!r}")


def as_declared(allowed: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return ``given`` with whole numbers as floats where the default is one: JSON does not tell 1 from 1.0."""
    return {
        name: float(value) if _is_whole(value) and isinstance(allowed.get(name), float) else value
        for name, value in given.items()
    }


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
    match value:
        case bool():
            return "True or False"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "a string"
        case _:
            return ""
