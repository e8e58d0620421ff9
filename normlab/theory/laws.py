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


#: Logarithm by which an exponential has to have grown at the largest depth to be told from a power.
_GROWN: Final = 1.0


@dataclass(frozen=True)
class Law:
    """How a number y grows with the depth L.

    Attributes:
        name: the kind of law.
        coefficient: c.
        exponent: p of c·L^p or c·(ln L)^p; β of c·exp(rate·L^β), 1 for an exponential; 0 for a constant.
        rate: of an exponential or stretched exponential; otherwise 0.
        residual: root mean square of ln y − ln law over the depths it was found at.
        reason: why there is none.
    """

    name: LawName
    coefficient: float = float("nan")
    exponent: float = 0.0
    rate: float = 0.0
    residual: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        match self.name:
            case "constant":
                return f"constant, {self.coefficient:.3g}"
            case "power":
                return f"power, {self.coefficient:.3g} · L^{self.exponent:.3f}"
            case "logarithm":
                return f"logarithm, {self.coefficient:.3g} · (ln L)^{self.exponent:.2f}"
            case "stretched exponential":
                return f"stretched exponential, {self.coefficient:.3g} · exp({self.rate:.3g} · L^{self.exponent:.2f})"
            case "exponential":
                return f"exponential, {self.coefficient:.3g} · exp({self.rate:.4g} · L)"
        return f"no theory: {self.reason}"


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
    * exponential: ln y = a + b L + p ln L
    """
    depth, y = np.array(depths, dtype=np.float64), np.array(values, dtype=np.float64)
    usable = np.isfinite(y) & (y > 0)
    depth, y = depth[usable], y[usable]
    if len(values) and not np.any(np.array(values)):
        return Law("constant", 0.0)
    if len(y) < 5:
        return Law("no theory", reason="too few depths within the closure's range")
    log = np.log(y)
    if np.ptp(log) < _FLAT:
        return Law("constant", float(y[-1]))
    found: Law | None = None
    for candidate in (_constant, _logarithm, _power, _stretched, _exponential):
        other = min(candidate(depth, log), key=lambda one: one.residual)
        if found is None or other.residual * _BETTER < found.residual:
            found = other
    assert found is not None
    if found.name in ("power", "logarithm") and abs(found.exponent) < _NO_POWER:
        return Law("constant", float(y[-1]), residual=found.residual)
    return found


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
    for beta in np.arange(0.25, 0.801, 0.01):
        (a, b, _), residual = _fit(log, depth**beta, np.log(depth))
        if abs(b) * float(depth[-1] ** beta) > _GROWN:
            yield Law("stretched exponential", _scale(a), float(beta), float(b), residual)
    yield _NONE


def _exponential(depth: Array, log: Array) -> Iterator[Law]:
    (a, b, _), residual = _fit(log, depth, np.log(depth))
    grown = abs(b) * float(depth[-1]) > _GROWN
    yield Law("exponential", _scale(a), 1.0, float(b), residual) if grown else _NONE
