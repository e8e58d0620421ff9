"""The definitions of the quantities, sites and roles that a report mentions."""

import re
from collections.abc import Iterable
from typing import Final

from normlab.table import QUANTITIES, SITES

#: What a role's gradient belongs to.
_ROLES: Final = {
    "down": "the MLP's last matrix; “the gradient of layer ℓ” without more is the gradient of block ℓ's down matrix",
}
#: The sites of the two tensors that a quantity of a pair compares.
_PAIRS: Final = {"update": ("update", "skip"), "branch": ("branch", "input")}
_QUOTED: Final = re.compile(r"'([a-z0-9_]+)'")


def definitions(queries: Iterable[str]) -> tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]:
    """Return the definitions of what ``queries`` name: quantities, sites and roles, each (name, definition, unit)."""
    names = {name for query in queries for name in _QUOTED.findall(query)}
    quantities = tuple((name, entry.definition, entry.unit) for name, entry in QUANTITIES.items() if name in names)
    sites = tuple((name, SITES[name].definition, "") for name in SITES if name in _with_tensors(names))
    roles = tuple((name, text, "") for name, text in _ROLES.items() if name in names)
    groups = (("Quantities", quantities), ("Sites", sites), ("Parameter roles", roles))
    return tuple((title, entries) for title, entries in groups if entries)


def _with_tensors(names: set[str]) -> set[str]:
    """A definition that refers to another site takes that site's definition along."""
    tensors = {SITES[name].gradient_of for name in names if name in SITES and SITES[name].gradient_of}
    pairs = {site for name in names if name in QUANTITIES for site in _PAIRS.get(QUANTITIES[name].of, ())}
    return names | tensors | pairs
