"""The one exception base class, and the sentences that go with it."""

import difflib
from collections.abc import Iterable


class NormlabError(Exception):
    """What was given, what is allowed, and what to do next, in one sentence."""


class UnknownNameError(NormlabError, KeyError):
    """A name that a registry, a table column or an option list does not hold."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return str(self.args[0])


class SpecError(NormlabError, ValueError):
    """A model that cannot be built as described."""


class DataError(NormlabError, ValueError):
    """A text, a batch or a table that cannot be used."""


class RecordingError(NormlabError, RuntimeError):
    """A measurement that would be wrong or incomplete."""


class RunError(NormlabError, RuntimeError):
    """A run folder that cannot be read, written or extended."""


def counted(count: int, noun: str) -> str:
    """Return a number of things: ``1 cell``, ``2 cells``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def suggest(name: str, allowed: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest allowed name, or an empty string."""
    nearest = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def unknown_name(what: str, name: str, allowed: Iterable[str]) -> UnknownNameError:
    """Build the error for ``name``, which is none of ``allowed``; ``what`` says what it should name."""
    names = sorted(allowed)
    return UnknownNameError(
        f"unknown {what} {name!r}: choose one of {', '.join(names) or '(none registered)'}{suggest(name, names)}"
    )
