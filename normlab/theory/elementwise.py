"""Maps that act on each entry of a covariance by itself: norms and position-wise functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from normlab.theory.copies import replace
from normlab.theory.kernels import Array

E = TypeVar("E", Array, Array | float)


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A map y = γ M(x) + β of tokens, as what it does to covariances.

    Attributes:
        value: covariance of the outputs.
        unit: covariance of M(x).
        first: E[∂y/∂x] of the first token of each pair: what a covariance with something independent of the map
            is multiplied by.
        second: the same of the second token.
        slopes: E[∂y/∂x ∂y′/∂x′] of each pair, where that is not the product of both but for ``kept``.
        kept: what is left of a gradient's square when the directions are gone that change nothing.
        lost: share of a gradient's square that goes with directions of the input that change nothing, where ``slope``
            leaves it out: a norm on the stream costs only what has joined the gradient since the last one (N3).
        gains: learnable entries of γ for each feature: 1, one for all features (1/d), or none (0).
        shifts: the same for β.
    """

    value: Array
    unit: Array
    first: Array | float = 1.0
    second: Array | float = 1.0
    slopes: Array | None = None
    kept: float = 1.0
    lost: float = 0.0
    gains: float = 0.0
    shifts: float = 0.0

    @property
    def slope(self) -> Array | float:
        """What the gradient's covariance at the output is multiplied by to give the one at the input."""
        return self.first * (self.second * self.kept) if self.slopes is None else self.slopes

    def back(self, gradient: Array) -> Array:
        """Return the gradient's covariance at the input, given the one at the output (N2)."""
        return gradient if isinstance(self.first, float) else gradient * self.slope

    @property
    def sparing(self) -> "Elementwise":
        """The same with only those covariances that :meth:`back` and :meth:`roles` read."""
        if self.value.ndim < 3:
            return self
        return replace(self, value=_NONE, unit=self.unit if self.gains else _NONE)

    def roles(self, gradient: Array) -> dict[str, Array]:
        """Return entries that sum to E‖∂loss/∂γ‖² and E‖∂loss/∂β‖², given the gradient at the output (N4)."""
        roles = {}
        if self.gains:
            roles["norm_gain"] = scaled(self.gains, gradient * self.unit)
        if self.shifts:
            roles["norm_bias"] = scaled(self.shifts, gradient)
        return roles


_NONE = np.empty(0)
_UNCHANGED = Elementwise(_NONE, _NONE)


class Back(NamedTuple):
    """What a sub-layer makes of a gradient's covariance at its branch.

    Attributes:
        inputs: the covariance at z.
        roles: entries that sum to E‖∂loss/∂W‖², by role.
        memory: the covariance at what keys and values read, where that is not z.
        sums: what the gradient of W_q has without scatter, and what that adds, where the two decide more (A11).
    """

    inputs: Array
    roles: dict[str, Array]
    memory: Array | None = None
    sums: tuple[Any, Any] | None = None


def identity(covariance: Array) -> Elementwise:
    """Return the map that changes nothing."""
    return replace(_UNCHANGED, value=covariance, unit=covariance)


def scaled(factor: float | Array, entries: E) -> E:
    """Return factor · entries; the entries themselves for a factor of 1, which most are."""
    return entries if is_one(factor) else factor * entries


def is_one(factor: float | Array) -> bool:
    """Whether nothing changes times ``factor``, which may be a column of numbers of several layers: then it does."""
    return not isinstance(factor, np.ndarray) and factor == 1


def summed(parts: Iterable[Array]) -> Array:
    """Return the sum of at least one array."""
    first, *others = parts
    for other in others:
        first = first + other
    return first


def of_first(entries: Array, *, like: Array) -> Array:
    """Return the first of several gradients, or the only one: that has as many axes as a covariance."""
    one: Array = entries if entries.ndim == like.ndim else entries[0]
    return one


def over_layers(entries: Array, *, like: Array) -> Array:
    """Return the sum over layers of entries that have an axis of them; otherwise the entries."""
    total: Array = entries if entries.ndim == like.ndim else entries.sum(axis=0)
    return total


def added(*parts: dict[str, Array]) -> dict[str, Array]:
    """Return the entries of each role, summed where several parts have it."""
    total: dict[str, Array] = {}
    for part in parts:
        for role, entries in part.items():
            total[role] = total[role] + entries if role in total else entries
    return total
