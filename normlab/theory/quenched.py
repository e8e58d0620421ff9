"""Exact moments of a softmax over independent Gaussian logits (equations Q1 to Q3 of ``docs/theory.md``).

For A = softmax(ℓ) over m independent logits of variance x, with G_k(y) = E exp(k(ℓ + y) − exp(ℓ + y)),

    E[A_1^k A_2^l] = ∫ G_k(y) G_l(y) G_0(y)^(m−k−l) dy / Γ(k + l)   where G_0 stands for all other positions,

since 1/Z^k = ∫ z^(k−1) exp(−z Z) dz / Γ(k).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from normlab.theory.geometry import Numbers
from normlab.theory.kernels import Array

#: Largest variance of logits of the tables: beyond it a softmax is a maximum.
LARGEST: Final = 36.0
_ROOTS = np.linspace(0.0, np.sqrt(LARGEST), 61)
_Y = np.linspace(-38.0, 34.0, 361)
_NORMAL = np.linspace(-6.5, 6.5, 131)
#: Variances below which two softmaxes act alike, and the step of ln x between curves.
_LEAST, _LOG_STEP = 0.01, 0.02


@dataclass(frozen=True, eq=False)
class Tables:
    """Moments over the roots of variances (rows) and m = 1 .. n (columns).

    Attributes:
        own: E Σ_s A_s² (Q2).
        centred: E[Σ A² − 2 Σ A³ + (Σ A²)²]: the sum over positions of the variance of A_s (u_s − Σ_t A_t u_t) for
            independent u of variance 1 (Q3), over its value for uniform attention.
    """

    own: Array
    centred: Array


@lru_cache(maxsize=8)
def tables(tokens: int) -> Tables:
    """Return the tables for up to ``tokens`` positions."""
    rows = [_moments(float(root), tokens) for root in _ROOTS]
    own, centred = np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
    m = np.arange(1, tokens + 1)
    uniform = np.where(m > 1, (1 - 1 / m) / m, 1.0)
    return Tables(own, np.where(m > 1, centred / uniform, 1.0))


def _bounded(root: float, y: Array = _Y) -> list[Array]:
    """Return G_0 to G_4 over the grid of y."""
    weight = np.exp(-(_NORMAL**2) / 2)
    weight /= weight.sum()
    grown = np.exp(np.minimum(y[:, None] + root * _NORMAL, 50.0))
    powers = np.exp(-grown)
    result = []
    for _ in range(5):
        result.append(powers @ weight)
        powers = powers * grown
    return result


def _moments(root: float, tokens: int) -> tuple[Array, Array]:
    g = _bounded(root)
    m = np.arange(1, tokens + 1)[:, None]
    log = np.log(np.maximum(g[0], 1e-300))
    step = _Y[1] - _Y[0]
    others, fewer = np.exp((m - 1) * log) * step, np.exp(np.maximum(m - 2, 0) * log) * step
    second, third, fourth = m[:, 0] * (others @ np.stack([g[2], g[3] / 2, g[4] / 6], axis=1)).T
    fourth = fourth + m[:, 0] * (m[:, 0] - 1) * (fewer @ g[2] ** 2) / 6
    return second, second - 2 * third + fourth


class Places(NamedTuple):
    """Where numbers of positions and variances are in :class:`Tables`.

    Attributes:
        corner: number of the entry that is next on the low side of both.
        across: how far it is to the next column, as a share.
        down: the same to the next row.
        columns: of the tables.
    """

    corner: NDArray[np.int64]
    across: Array
    down: Array
    columns: int

    def first(self, count: int) -> "Places":
        """Return the places of the first ``count`` entries."""
        return Places(self.corner[:count], self.across[:count], self.down[:count], self.columns)


def places(seen: Array, variance: Array, columns: int) -> Places:
    """Return the places of m = ``seen`` ≥ 1, which need not be whole, and of variances, by their roots."""
    down = np.minimum(np.maximum(variance, 0.0), LARGEST)
    np.sqrt(down, out=down)
    down *= 1 / _ROOTS[1]
    corner = down.astype(np.int64)
    np.minimum(corner, len(_ROOTS) - 2, out=corner)
    down -= corner
    column = seen.astype(np.int64)
    np.minimum(column, max(columns - 1, 1), out=column)
    corner *= columns
    corner += column
    corner -= 1
    return Places(corner, seen - column, down, columns)


def read(table: Array, at: Places) -> Array:
    """Interpolate a table."""
    if at.columns == 1:
        return np.full_like(at.down, table[0, 0])
    # Places are within the table: "clip" spares a check.
    top, right, bottom, last = (
        table.ravel().take(at.corner + shift, mode="clip") for shift in (0, 1, at.columns, at.columns + 1)
    )
    for left, next_ in ((top, right), (bottom, last)):
        next_ -= left
        next_ *= at.across
        left += next_
    bottom -= top
    bottom *= at.down
    top += bottom
    return top


def at(table: Array | Sequence[float], variance: Numbers) -> Numbers:
    """Interpolate a table at one variance, for every m or the one that it is for; at several, one for one m."""
    if isinstance(variance, np.ndarray):
        return np.interp(np.sqrt(np.clip(variance, 0.0, LARGEST)), _ROOTS, table)
    place = min(max(variance, 0.0), LARGEST) ** 0.5 / float(_ROOTS[1])
    row = min(int(place), len(_ROOTS) - 2)
    return table[row] * (1 - (place - row)) + table[row + 1] * (place - row)


@lru_cache(maxsize=16)
def _large(count: int) -> tuple[Array, Array]:
    """Return E Σ_s A_s² and E ln Σ_s exp(ℓ_s) over the roots of variances, for one number of positions."""
    shares, logs = [], []
    step = _Y[1] - _Y[0]
    for root in _ROOTS:
        zero, _, second, _, _ = _bounded(float(root))
        log = np.log(np.maximum(zero, 1e-300))
        shares.append(count * float(np.exp((count - 1) * log) @ second) * step)
        # ln Z = ∫ (exp(−z) − exp(−z Z)) dz/z.
        logs.append(float((np.exp(-np.exp(np.minimum(_Y, 50.0))) - np.exp(count * log)).sum()) * step)
    return np.array(shares), np.array(logs)


def share(count: int, variance: Array) -> Array:
    """Return E Σ_s A_s² over ``count`` classes, for independent logits of that variance (Q2)."""
    return np.interp(np.sqrt(np.clip(variance, 0.0, LARGEST)), _ROOTS, _large(count)[0])


def meeting(count: int, shared: Array, variance: Array) -> Array:
    """Return E Σ_s A_s A′_s of two softmaxes whose logits share a part of their variance (Q5).

    Args:
        count: of classes.
        shared: covariance of the two logits of a class.
        variance: of the logits, √(x x′) where the two differ.
    """
    ratio = shared / np.maximum(variance, 1e-12)
    typical = float(np.clip(np.mean(variance), _LEAST, LARGEST))
    curve = _meetings(count, round(float(np.log(typical)) / _LOG_STEP))
    grown = share(count, variance) * np.exp(curve(np.clip(ratio, 0.0, 1.0)))
    alike = (variance < _LEAST) & (shared >= 0)
    return np.where(alike, share(count, shared), np.where(ratio < 0, (1 + shared) / count, grown))


@lru_cache(maxsize=32)
def _meetings(count: int, place: int) -> CubicSpline:
    """Return ln of what a shared share of the variance leaves of E Σ A², over that share."""
    variance = float(np.exp(place * _LOG_STEP))
    shares = np.linspace(0.0, 1.0, 13)
    met = np.array([_met(count, variance, float(part) * variance) for part in shares])
    return CubicSpline(shares, np.log(met / met[-1]))


def _met(count: int, variance: float, shared: float) -> float:
    """V ∫∫ G_11(y, y′) G_00(y, y′)^(V−1) dy dy′: both z integrals, and the average over the shared part, outermost."""
    weight = np.exp(-(_NORMAL**2) / 2)
    weight /= weight.sum()
    y = _Y[::2]
    at = y[:, None] + np.sqrt(shared) * _NORMAL
    fine = np.linspace(at.min(), at.max(), 1500)
    grown = np.exp(np.minimum(fine[:, None] + np.sqrt(variance - shared) * _NORMAL, 50.0))
    powers = np.exp(-grown)
    zero, first = (np.interp(at, fine, entries @ weight) for entries in (powers, powers * grown))
    none, both = (zero * weight) @ zero.T, (first * weight) @ first.T
    others = np.exp((count - 1) * np.log(np.maximum(none, 1e-300)))
    return float(count * (both * others).sum() * (y[1] - y[0]) ** 2)


def log_partition(count: int, variance: float) -> float:
    """Return E ln Σ_s exp(ℓ_s) over ``count`` independent logits of a variance (H1)."""
    root = float(np.sqrt(max(variance, 0.0)))
    beyond = max(root - float(_ROOTS[-1]), 0.0) * float(np.sqrt(2 * np.log(count)))
    return float(np.interp(root, _ROOTS, _large(count)[1])) + beyond


@dataclass(frozen=True)
class Marked:
    """Moments of a softmax one of whose logits has a mean of its own.

    Attributes:
        own: E p_0 of that class.
        square: E p_0².
        others: E Σ p² over all other classes.
        log: E ln Σ_s exp(ℓ_s).
    """

    own: float
    square: float
    others: float
    log: float


def marked(count: int, mean: float, extra: float, variance: float) -> Marked:
    """Return the moments for ``count`` classes (Q4).

    Args:
        count: of classes, at least 2.
        mean: of the one logit.
        extra: by how much its variance exceeds that of the others.
        variance: of the others.
    """
    step = float(_Y[1] - _Y[0])
    y = np.arange(float(_Y[0]) - max(mean, 0.0), float(_Y[-1]), step)
    zero, _, second, *_ = _bounded(float(np.sqrt(variance)), y)
    own = _bounded(float(np.sqrt(variance + extra)), y + mean)
    log = np.log(np.maximum(zero, 1e-300))
    all_others, fewer = np.exp((count - 1) * log) * step, np.exp((count - 2) * log) * step
    without = np.exp(-np.exp(np.minimum(y, 50.0))).sum() * step
    return Marked(
        own=float(all_others @ own[1]),
        square=float(all_others @ own[2]),
        others=float((count - 1) * (fewer @ (own[0] * second))),
        log=float(without - all_others @ own[0]),
    )
