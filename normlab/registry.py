"""Names and what they stand for: definitions that are fixed, and a registry for norms, placements, inits and claims."""

from collections.abc import ItemsView, Iterable, Iterator
from typing import Generic, Protocol, TypeVar, runtime_checkable

from normlab.errors import NormlabError, unknown_name


@runtime_checkable
class Named(Protocol):
    """Anything that carries its own name."""

    @property
    def name(self) -> str:
        """The key under which it is found."""
        ...


Entry = TypeVar("Entry", bound=Named)


class Definitions(dict[str, Entry]):
    """What names mean, in a fixed order; a name that is not there is an error that suggests the nearest.

    Args:
        what: the singular noun that error messages use, such as ``"quantity"``.
        entries: what is defined.
    """

    def __init__(self, what: str, entries: Iterable[Entry]) -> None:
        super().__init__((entry.name, entry) for entry in entries)
        self.what = what

    def __missing__(self, name: object) -> Entry:
        raise unknown_name(self.what, str(name), self)


class Registry(Generic[Entry]):
    """Entries by name, in the order in which they were registered.

    Args:
        what: the singular noun that error messages use, such as ``"placement"``.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, Entry] = {}

    def register(self, entry: Entry, *, replace: bool = False) -> Entry:
        """Add ``entry`` under its own name and return it.

        Registering an equal entry again is allowed, so that a plugin can be imported twice.

        Raises:
            NormlabError: another entry has that name and ``replace`` is false.
        """
        present = self._entries.get(entry.name)
        if present is not None and present != entry and not replace:
            raise NormlabError(
                f"{self.what} {entry.name!r} is registered already: "
                f"choose another name, or pass replace=True to replace it"
            )
        self._entries[entry.name] = entry
        return entry

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise unknown_name(self.what, str(name), self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> ItemsView[str, Entry]:
        """Names and entries."""
        return self._entries.items()
