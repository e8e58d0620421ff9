"""Sums and averages over the positions that a pair of positions sees, as matrices over pairs (A1, A4 to A6)."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import Chebyshev, Polynomial

from normlab.theory.kernels import Array

#: What is left out of the series, relative to its sum.
_TOLERANCE = 1e-5
#: Exponents up to which coefficients of Chebyshev's polynomials do not cancel.
_NARROW = 3.0
#: Entries of all powers together that are summed at a time: what a processor's own memory holds.
_AT_ONCE = 1 << 17


@lru_cache(maxsize=8)
def pairs_seen(tokens: int, causal: bool) -> Array:
    """Return how many pairs (s, t) i and j see."""
    place = np.arange(1.0, tokens + 1) if causal else np.full(tokens, float(tokens))
    product: Array = np.multiply.outer(place, place)
    return product


@lru_cache(maxsize=8)
def _averaging(tokens: int) -> Array:
    """Return the matrix that averages over the first 1, 2, ... positions."""
    matrix: Array = np.tri(tokens) / np.arange(1.0, tokens + 1)[:, None]
    return matrix


def averaged(entries: Array, axis: int, causal: bool) -> Array:
    """Average over the positions that each position sees, along one axis."""
    if not causal:
        return np.broadcast_to(entries.mean(axis=axis, keepdims=True), entries.shape)
    matrix = _averaging(entries.shape[-1])
    averages: Array = np.matmul(matrix, entries) if axis == -2 else np.matmul(entries, matrix.T)
    return averages


def sent_back(entries: Array, axis: int, causal: bool) -> Array:
    """Return the transpose of :func:`averaged`."""
    if not causal:
        return np.broadcast_to(entries.mean(axis=axis, keepdims=True), entries.shape)
    matrix = _averaging(entries.shape[-1])
    sent: Array = np.matmul(matrix.T, entries) if axis == -2 else np.matmul(entries, matrix)
    return sent


@lru_cache(maxsize=256)
def exponential(reach: float) -> tuple[float, ...]:
    """Return the coefficients of a polynomial that is exp within the tolerance between −reach and reach.

    Chebyshev's take two terms fewer than Taylor's; these are kept for a wide range, where the others cancel.
    """
    if reach < _NARROW:
        degree, error = 0, reach
        while error > _TOLERANCE:
            degree += 1
            error *= reach / (2 * degree + 2)
        near = Chebyshev.interpolate(np.exp, degree, domain=[-reach, reach])
        return tuple(near.convert(kind=Polynomial).coef.tolist())
    terms = [1.0]
    while terms[-1] * reach ** (len(terms) - 1) > _TOLERANCE or len(terms) < reach:
        terms.append(terms[-1] / len(terms))
    return tuple(terms)


def series(factor: Array, right: Array, step: Array, terms: tuple[float, ...], causal: bool) -> Array:
    """Return Σ_k c_k factor^k · S(right · step^k), S the sum over the first positions of both tokens.

    ``right`` may have axes before those of the pairs.
    """
    result = np.empty(np.broadcast_shapes(right.shape, factor.shape))
    right = np.broadcast_to(right, (*result.shape[:-3], *step.shape))
    for some in _chunks(result, len(terms)):
        sums = _of_powers(right[..., some, :, :], step[some], len(terms), causal)
        _polynomial(factor[some], sums, terms, result[..., some, :, :])
    return result


def two_series(factor: Array, right: Array, step: Array, terms: tuple[float, ...], causal: bool) -> tuple[Array, Array]:
    """Return :func:`series` of ``right`` and of ``right · step``, which have all powers but one in common."""
    results = np.empty((2, *np.broadcast_shapes(right.shape, factor.shape)))
    for some in _chunks(results[0], len(terms) + 1):
        sums = _of_powers(right[some], step[some], len(terms) + 1, causal)
        for shift, result in enumerate(results):
            _polynomial(factor[some], sums[shift:], terms, result[some])
    return results[0], results[1]


def _chunks(result: Array, powers: int) -> Iterator[slice]:
    """Yield pairs of sequences of which all powers are summed at once."""
    count = result.shape[-3]
    each = max(_AT_ONCE * count // (result.size * powers), 1)
    return (slice(begin, begin + each) for begin in range(0, count, each))


def _of_powers(right: Array, step: Array, count: int, causal: bool) -> Array:
    """Return S(right · step^k) for k = 0 .. count − 1."""
    powers = np.empty((count, *right.shape))
    powers[0] = right
    for k in range(1, count):
        np.multiply(powers[k - 1], step, out=powers[k])
    if not causal:
        return np.asarray(powers.sum(axis=(-2, -1), keepdims=True))
    torch.from_numpy(powers).cumsum_(-1).cumsum_(-2)
    return powers


def _polynomial(factor: Array, sums: Array, terms: tuple[float, ...], result: Array) -> None:
    """Write Σ_k c_k factor^k · sums_k to ``result``."""
    np.multiply(sums[len(terms) - 1], terms[-1], out=result)
    for term, one in zip(terms[-2::-1], sums[len(terms) - 2 :: -1], strict=False):
        result *= factor
        result += term * one


def prefix(entries: Array, causal: bool) -> Array:
    """Sum over the first positions of both tokens; over all of them where there is no mask."""
    if not causal:
        return np.asarray(entries.sum(axis=(-2, -1), keepdims=True))
    # PyTorch's is three times as fast as NumPy's.
    summed: Array = torch.from_numpy(entries).cumsum(-1).cumsum_(-2).numpy()
    return summed


def backwards(entries: Array) -> Array:
    """Return the entries with both positions in reverse order."""
    return np.ascontiguousarray(entries[..., ::-1, ::-1])
