"""Exact moments of a softmax over independent Gaussian logits (equations Q1 to Q3 of ``docs/theory.md``).

For A = softmax(ℓ) over m independent logits of variance x, with G_k(y) = E exp(k(ℓ + y) − exp(ℓ + y)),

    E[A_1^k A_2^l] = ∫ G_k(y) G_l(y) G_0(y)^(m−k−l) dy / Γ(k + l)   where G_0 stands for all other positions,

since 1/Z^k = ∫ z^(k−1) exp(−z Z) dz / Γ(k).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from normlab.theory.kernels import Array

#: Largest variance of logits of the tables: beyond it a softmax is a maximum.
LARGEST: Final = 36.0
_ROOTS = np.linspace(0.0, np.sqrt(LARGEST), 61)
_Y = np.linspace(-38.0, 34.0, 361)
_NORMAL = np.linspace(-6.5, 6.5, 131)


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


def _bounded(root: float) -> list[Array]:
    """Return G_0 to G_4 over the grid of y."""
    weight = np.exp(-(_NORMAL**2) / 2)
    weight /= weight.sum()
    grown = np.exp(np.minimum(_Y[:, None] + root * _NORMAL, 50.0))
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


def read(table: Array, seen: Array, variance: Array) -> Array:
    """Interpolate a table at m = ``seen``, which need not be whole, and the given variances, in their roots."""
    place = np.sqrt(np.minimum(np.maximum(variance, 0.0), LARGEST)) * (1 / _ROOTS[1])
    row = np.minimum(place.astype(np.int64), len(_ROOTS) - 2)
    column = np.minimum(seen.astype(np.int64), table.shape[1]) - 1
    if table.shape[1] == 1:
        return np.full_like(variance, table[0, 0])
    column = np.minimum(column, table.shape[1] - 2)
    down, across = place - row, seen - 1 - column
    flat, first = table.ravel(), row * table.shape[1] + column
    top = flat[first] * (1 - across) + flat[first + 1] * across
    first += table.shape[1]
    bottom = flat[first] * (1 - across) + flat[first + 1] * across
    result: Array = top * (1 - down) + bottom * down
    return result


def at(table: Array, variance: float) -> Array:
    """Interpolate a table at one variance, for every m."""
    place = min(max(variance, 0.0), LARGEST) ** 0.5 / float(_ROOTS[1])
    row = min(int(place), len(_ROOTS) - 2)
    result: Array = table[row] * (1 - (place - row)) + table[row + 1] * (place - row)
    return result


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
    """Return E Σ_s A_is A_js over ``count`` classes, for logits whose covariance between i and j is ``variance``.

    Exact for i = j; two softmaxes act as one whose logits vary by what they share. Negative covariances are small.
    """
    low = 1 / count + np.minimum(variance, 0.0) / count
    return np.where(variance < 0, low, np.interp(np.sqrt(np.clip(variance, 0.0, LARGEST)), _ROOTS, _large(count)[0]))


def log_partition(count: int, variance: float) -> float:
    """Return E ln Σ_s exp(ℓ_s) over ``count`` independent logits of a variance (H1)."""
    root = float(np.sqrt(max(variance, 0.0)))
    beyond = max(root - float(_ROOTS[-1]), 0.0) * float(np.sqrt(2 * np.log(count)))
    return float(np.interp(root, _ROOTS, _large(count)[1])) + beyond
