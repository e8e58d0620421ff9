"""Which law a number follows as depth grows, from values that carry no noise (equation X1 of ``docs/theory.md``)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from normlab.theory.kernels import Array

LawName: TypeAlias = Literal["constant", "logarithm", "power", "stretched exponential", "exponential", "no theory"]

#: Relative changes over all depths below which a number is constant outright.
_FLAT: Final = 2e-3
#: A law with fewer surprises is kept unless a later one fits this many times better.
_BETTER: Final = 3.0


#: Logarithm by which an exponential has to have grown at the largest depth to be told from a power, unless it fits
#: this many times better.
_GROWN: Final = 0.5
_FAR_BETTER: Final = 30.0
#: The largest power of L beside a sum of exponentials: a larger one would undo it.
_SUMMED_POWER: Final = 0.5
#: The largest β that is tried.
_MOST_STRETCHED: Final = 0.7
#: Depths that are needed for a law, and the residual above which the first ones are left out.
_FEWEST: Final = 5
_CLOSE: Final = 5e-3
#: Residuals that are said with a law: it does not describe what happens at these depths to within a percent.
_SAID: Final = 1e-2


@dataclass(frozen=True)
class Law:
    """How a number y grows with the depth L.

    Attributes:
        name: the kind of law.
        coefficient: c.
        exponent: p of c·L^p or c·(ln L)^p; β of c·L^power·exp(rate·L^β), 1 for an exponential; 0 for a constant.
        rate: of an exponential or stretched exponential; otherwise 0.
        power: the power of L beside it; otherwise 0.
        residual: root mean square of ln y − ln law over the depths it was found at.
        reason: why there is none.
    """

    name: LawName
    coefficient: float = float("nan")
    exponent: float = 0.0
    rate: float = 0.0
    power: float = 0.0
    residual: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        if self.name == "no theory":
            return f"no theory: {self.reason}"
        apart = f", to {100 * self.residual:.0f} %" if self.residual > _SAID else ""
        return f"{self.name}, {self.coefficient:.3g}{self._growth()}{apart}"

    def _growth(self) -> str:
        beside = f" · L^{self.power:.2f}" if abs(self.power) > _NO_POWER else ""
        match self.name:
            case "power":
                return f" · L^{self.exponent:.3f}"
            case "logarithm":
                return f" · (ln L)^{self.exponent:.2f}"
            case "stretched exponential":
                return f"{beside} · exp({self.rate:.3g} · L^{self.exponent:.2f})"
            case "exponential":
                return f"{beside} · exp({self.rate:.4g} · L)"
        return ""


#: Powers below which a logarithm is another reading.
_SMALL: Final = 0.25
#: Exponents that are taken as 0: slower changes than this die out, or cannot be told from those that do.
_NO_POWER: Final = 0.03
_NONE: Final = Law("no theory", residual=float("inf"))


def law(depths: Sequence[int], values: Sequence[float]) -> Law:
    """Return the law that ``values`` follow over ``depths``, of which the larger ones count.

    Each candidate is a straight line in one transformed depth, with one more parameter for what dies out:

    * constant: ln y = a + b L^−s
    * logarithm: ln y = a + p ln(ln L + s)
    * power: ln y = a + p ln L + b L^−s
    * stretched exponential: ln y = a + b L^β + p ln L
    * exponential: ln y = a + b L + p ln L, or a + ln(e^(b L) − 1) + p ln L as sums over layers have it

    Where none is close, the first depths are left out one by one, down to five: they tell how a law begins.
    """
    depth, y = np.array(depths, dtype=np.float64), np.array(values, dtype=np.float64)
    usable = np.isfinite(y) & (y > 0)
    depth, y = depth[usable], y[usable]
    if len(values) and not np.any(np.array(values)):
        return Law("constant", 0.0)
    if len(y) < _FEWEST:
        return Law("no theory", reason="too few depths within the closure's range")
    log = np.log(y)
    if np.ptp(log) < _FLAT:
        return Law("constant", float(y[-1]))
    found = _NONE
    for first in range(len(y) - _FEWEST + 1):
        found = min(found, _simplest(depth[first:], log[first:]), key=lambda one: one.residual)
        if found.residual < _CLOSE:
            break
    if found.name in ("power", "logarithm") and abs(found.exponent) < _NO_POWER:
        return Law("constant", float(y[-1]), residual=found.residual)
    return found


def _simplest(depth: Array, log: Array) -> Law:
    """Return the first of the five laws that no later one fits much better than."""
    found = min(_constant(depth, log), key=lambda one: one.residual)
    for candidate in (_logarithm, _power, _stretched, _exponential):
        other = min(candidate(depth, log), key=lambda one: one.residual)
        if other.residual * _needed(found, other, float(depth[-1])) < found.residual:
            found = other
    return found


def _needed(found: Law, other: Law, deepest: float) -> float:
    """Return how many times better ``other`` has to fit than a simpler law."""
    match other.name:
        case "power":
            # A logarithm passes for a small power over so few octaves.
            return _FAR_BETTER if found.name == "logarithm" and abs(other.exponent) < _SMALL else _BETTER
        case "stretched exponential" if other.exponent >= _MOST_STRETCHED:
            return float("inf")  # at the edge of what is tried: it is something else
        case "stretched exponential" | "exponential":
            return _BETTER if abs(other.rate) * deepest**other.exponent > _GROWN else _FAR_BETTER
    return _BETTER


def _fit(log: Array, *columns: Array) -> tuple[Array, float]:
    """Return coefficients after an intercept's, and the root mean square residual."""
    design = np.stack([np.ones_like(log), *columns], axis=1)
    solution: Array = np.linalg.lstsq(design, log, rcond=None)[0].astype(np.float64)
    return solution, float(np.sqrt(((log - design @ solution) ** 2).mean()))


def _scale(log: float) -> float:
    # A candidate that does not fit may have an intercept beyond the range of numbers.
    return float(np.exp(min(log, 700.0)))


def _constant(depth: Array, log: Array) -> Iterator[Law]:
    for s in np.arange(0.4, 3.01, 0.1):
        (a, _), residual = _fit(log, depth**-s)
        yield Law("constant", _scale(a), residual=residual)


def _logarithm(depth: Array, log: Array) -> Iterator[Law]:
    for s in np.arange(-0.8, 4.01, 0.05) * np.log(depth[0]):
        (a, p), residual = _fit(log, np.log(np.log(depth) + s))
        if 0.3 < abs(p) < 2.2:
            yield Law("logarithm", _scale(a), float(p), residual=residual)
    yield _NONE


def _power(depth: Array, log: Array) -> Iterator[Law]:
    for s in np.arange(0.3, 2.01, 0.1):
        (a, p, _), residual = _fit(log, np.log(depth), depth**-s)
        yield Law("power", _scale(a), float(p), residual=residual)


def _stretched(depth: Array, log: Array) -> Iterator[Law]:
    for beta in np.arange(0.25, _MOST_STRETCHED + 0.001, 0.01):
        (a, b, p), residual = _fit(log, depth**beta, np.log(depth))
        yield Law("stretched exponential", _scale(a), float(beta), float(b), float(p), residual)


def _exponential(depth: Array, log: Array) -> Iterator[Law]:
    for columns in ((depth,), (depth, np.log(depth))):
        (a, b, *p), residual = _fit(log, *columns)
        yield Law("exponential", _scale(a), 1.0, float(b), float(p[0]) if p else 0.0, residual)
    rates = np.geomspace(_GROWN, 40.0, 150) / depth[-1]
    near = min((_summed(depth, log, rate) for rate in rates), key=lambda one: one.residual)
    if abs(near.power) < _SUMMED_POWER:
        yield from (_summed(depth, log, near.rate * around) for around in np.linspace(0.97, 1.03, 61))


def _summed(depth: Array, log: Array, rate: float) -> Law:
    """A sum over layers of an exponential."""
    (a, p), residual = _fit(log - np.log(np.expm1(rate * depth)), np.log(depth))
    return Law("exponential", _scale(a), 1.0, rate, float(p), residual)
