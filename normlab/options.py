"""Options of registered entries: the keyword-only parameters of the function that an entry carries."""

import inspect
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from normlab.errors import SpecError, suggest

OptionValue: TypeAlias = bool | int | float | str
Options: TypeAlias = tuple[tuple[str, OptionValue], ...]


def keyword_options(function: object, *, leave_out: Iterable[str] = ()) -> dict[str, object]:
    """Return the keyword-only parameters of ``function`` and their defaults; none where it is not callable."""
    if not callable(function):
        return {}
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in leave_out
    }


def check_options(owner: str, allowed: Mapping[str, object], given: Iterable[str]) -> None:
    """Check that ``owner`` (such as ``norm 'rmsnorm'``) has every option in ``given``.

    Raises:
        SpecError: it does not have one of them.
    """
    for name in given:
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise SpecError(f"{owner} has no option {name!r}: its options are {names}{suggest(name, allowed)}")
