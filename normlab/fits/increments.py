"""Exponents of growth that start from an unknown offset: fitted on increments, so that the offset drops out.

The noise of a residual stream accumulates: y_ℓ = y_0 + Δ_1 + … + Δ_ℓ, where an increment's standard
deviation (its cross term with the stream) grows like √y and soon exceeds its mean, so that many
increments of one network are negative. Hence the estimator is not a regression of ln Δ (which has to
drop the negative ones: −0.05 on flat increments of measured networks, +0.17 with three times their
noise), nor least squares on y (whose residuals are a cumulated sum: up to +0.03, and a quarter wider),
but the quasi-Poisson estimating equation

    Σ_ℓ w_ℓ (Δ_ℓ − b·m_ℓ(p)) = 0,   Σ_ℓ w_ℓ ln x_ℓ (Δ_ℓ − b·m_ℓ(p)) = 0,   w_ℓ = 1/y_{ℓ−1},

in which negative increments are as good as positive ones. The weight is the inverse of the variance up
to a constant, and known before the increment is drawn: each term has mean zero whatever went before,
and seeds stay independent. Its bias is below 0.003 at the noise of measured networks, 0.01 at three
times that noise.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from normlab.fits.curve import Condition, Curves, Data, curves
from normlab.fits.intervals import Floats
from normlab.fits.slopes import ExponentFit, need, summary

#: Maps exponents [seeds] and abscissae to the shape of the increments, [seeds, increments].
Shape: TypeAlias = Callable[[Floats], Floats]

_SMALLEST, _LARGEST = -12.0, 12.0


def increments_exponent(
    data: Data, y: str = "", *, x: str = "layer", where: Condition = None, seed: str = "model_seed", level: float = 0.95
) -> ExponentFit:
    """Fit Δy = c·x^p to the increments of y from one abscissa to the next, in each seed.

    p = 0: y grows linearly. The increment from x_{ℓ−1} to x_ℓ belongs to x_ℓ, and is divided by
    x_ℓ − x_{ℓ−1}; the first point (layer 0) only starts the sum.

    Args:
        data: a table, :class:`~normlab.fits.Curves`, or arrays ``(x, y)`` with y ``[seeds, points]``.
        y: the quantity, such as ``"mean_square"``.
        x: the column to plot against; a curve against layers must come from models of one depth.
        where: which rows, as a query or as allowed values of columns.
        seed: the column that tells seeds apart.
        level: coverage of the interval.

    Raises:
        DataError: fewer than four abscissae, no seed whose increments have an exponent, or rows of
            different things mixed.

    >>> round(increments_exponent((range(6), [1.0, 2.0, 4.0, 7.0, 11.0, 16.0])).exponent, 6)
    1.0
    """
    found = _positive_y(curves(data, y, x=x, where=where, seed=seed)).balanced()
    need(found, points=4)
    at, steps = np.log(found.x[1:]), np.diff(found.x)

    def shape(p: Floats) -> Floats:
        return np.asarray(np.exp(p[:, None] * at) * steps)

    powers, scales = _solve(found, at, shape)
    return summary(found, powers, level, law="Δy/Δx = c·x^p", prefactor=_geometric(scales, powers), offset=0.0)


def offset_exponent(
    data: Data, y: str = "", *, x: str = "layer", where: Condition = None, seed: str = "model_seed", level: float = 0.95
) -> ExponentFit:
    """Fit y = a + c·x^p with the offset a left free, in each seed: for the exponent alone.

    Increments c·(x_ℓ^p − x_{ℓ−1}^p) do not contain a. With three free parameters the law bends to
    almost any smooth curve: it gives an exponent, and is no candidate in
    :func:`~normlab.fits.growth_law`.

    Args:
        data: a table, :class:`~normlab.fits.Curves`, or arrays ``(x, y)`` with y ``[seeds, points]``.
        y: the quantity, such as ``"mean_square"`` or ``"rms"``.
        x: the column to plot against; points at x ≤ 0 are left out.
        where: which rows, as a query or as allowed values of columns.
        seed: the column that tells seeds apart.
        level: coverage of the interval.

    Raises:
        DataError: fewer than four abscissae, no seed that has an exponent, or rows of different things
            mixed.

    >>> round(offset_exponent(([1, 2, 4, 8, 16], [5.0, 6.0, 8.0, 12.0, 20.0])).exponent, 6)
    1.0
    """
    found = curves(data, y, x=x, where=where, seed=seed).positive().balanced()
    need(found, points=4)
    log_x = np.log(found.x)
    middle = (log_x[1:] + log_x[:-1]) / 2

    def shape(p: Floats) -> Floats:
        # (x_ℓ^p − x_{ℓ−1}^p)/p, which is ln(x_ℓ/x_{ℓ−1}) at p = 0.
        half = p[:, None] * np.diff(log_x) / 2
        small = np.abs(half) < 1e-8
        ratio = np.where(small, 1.0, np.sinh(half) / np.where(small, 1.0, half))
        return np.asarray(np.exp(p[:, None] * middle) * ratio * np.diff(log_x))

    powers, scales = _solve(found, middle, shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = scales / powers
        offsets = (found.y - factors[:, None] * np.exp(powers[:, None] * log_x)).mean(axis=1)
    return summary(
        found,
        powers,
        level,
        law="y = a + c·x^p",
        prefactor=float(np.nanmean(factors)) if np.isfinite(factors).any() else np.nan,
        offset=float(np.nanmean(offsets)) if np.isfinite(offsets).any() else np.nan,
    )


def _positive_y(found: Curves) -> Curves:
    """Leave out values of y that are not positive: weights are their inverses."""
    lost = int((found.y <= 0).sum())
    note = (f"{lost} points are zero or negative",) if lost else ()
    kept = np.where(found.y > 0, found.y, np.nan)
    return Curves(found.x, kept, found.seeds, found.x_name, found.y_name, (*found.left_out, *note))


def _solve(found: Curves, at: Floats, shape: Shape) -> tuple[Floats, Floats]:
    """Return each seed's exponent and scale, NaN where no exponent satisfies the estimating equation.

    With b eliminated the equation says that the mean of ln x under the weights w·Δ equals its mean
    under w·m(p), which rises with p: bisection cannot miss the root.
    """
    weights = 1 / found.y[:, :-1]
    gained = weights * np.diff(found.y, axis=1)
    total = gained.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = (gained * at).sum(axis=1) / total
    low, high = (np.full(len(found.y), end) for end in (_SMALLEST, _LARGEST))
    for _ in range(50):
        middle = (low + high) / 2
        above = _mean_abscissa(weights * shape(middle), at) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    powers = (low + high) / 2
    reached = (powers > _SMALLEST + 1e-6) & (powers < _LARGEST - 1e-6) & np.isfinite(wanted)
    scales = total / (weights * shape(powers)).sum(axis=1)
    return np.where(reached, powers, np.nan), np.where(reached, scales, np.nan)


def _mean_abscissa(weights: Floats, at: Floats) -> Floats:
    return np.asarray((weights * at).sum(axis=1) / weights.sum(axis=1))


def _geometric(scales: Floats, powers: Floats) -> float:
    kept = scales[np.isfinite(powers) & (scales > 0)]
    return float(np.exp(np.log(kept).mean())) if len(kept) else float("nan")
