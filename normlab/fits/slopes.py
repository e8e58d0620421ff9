"""Exponents of power laws: log-log slopes, one a seed."""

from dataclasses import dataclass, field

import numpy as np

from normlab.errors import DataError
from normlab.fits.curve import Condition, Curves, Data, curves
from normlab.fits.intervals import Floats, Values, seed_interval


@dataclass(frozen=True, kw_only=True)
class ExponentFit:
    """An exponent p with its Student t interval over seeds.

    Attributes:
        exponent: mean over seeds of each seed's p.
        low: lower end of the interval.
        high: upper end.
        level: coverage of the interval.
        n_seeds: seeds that have a p.
        sd: standard deviation of p over seeds.
        law: the formula that p belongs to.
        prefactor: c in that formula (its geometric mean over seeds).
        offset: a in that formula (its mean over seeds), 0 where the formula has none.
        seeds: the names of the seeds that have a p.
        per_seed: each seed's p, in the same order.
        x: the abscissae that were used.
        x_name: what x is.
        y_name: what y is.
        left_out: what is missing and why.
    """

    exponent: float
    low: float
    high: float
    level: float
    n_seeds: int
    sd: float
    law: str
    prefactor: float
    offset: float
    seeds: tuple[int, ...] = field(repr=False)
    per_seed: tuple[float, ...] = field(repr=False)
    x: tuple[float, ...] = field(repr=False)
    x_name: str
    y_name: str
    left_out: tuple[str, ...]

    def predict(self, x: Values) -> Floats:
        """Return a + c·x^p at ``x``, to draw the law that was fitted."""
        return np.asarray(self.offset + self.prefactor * np.asarray(x, dtype=np.float64) ** self.exponent)

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{note}</li>" for note in self.left_out)
        return (
            f"<p><b>{self.law}</b> with y = {self.y_name}, x = {self.x_name}: p = {self.exponent:.3f} "
            f"[{self.low:.3f}, {self.high:.3f}] ({self.level:.0%}, {self.n_seeds} seeds)</p>"
            + (f"<ul>{notes}</ul>" if notes else "")
        )


def exponent(
    data: Data, y: str = "", *, x: str = "depth", where: Condition = None, seed: str = "model_seed", level: float = 0.95
) -> ExponentFit:
    """Fit y = c·x^p: the ordinary least-squares slope of ln y on ln x in each seed, then a t interval.

    Logarithms are averaged, never y itself. A value that is zero or negative has no logarithm: it is
    left out and counted in ``left_out``.

    Args:
        data: a table, :class:`~normlab.fits.Curves`, or arrays ``(x, y)`` with y ``[seeds, points]``.
        y: the quantity, such as ``"grad_norm"``.
        x: the column to plot against, such as ``"depth"``.
        where: which rows, as a query or as allowed values of columns.
        seed: the column that tells seeds apart.
        level: coverage of the interval.

    Raises:
        DataError: fewer than two abscissae, no seed left, or rows of different things mixed.

    >>> exponent(([1, 2, 4], [[3.0, 6.0, 12.0], [5.0, 10.0, 20.0]])).exponent
    1.0
    """
    whole = curves(data, y, x=x, where=where, seed=seed).positive().balanced()
    need(whole, points=2)
    log_x, log_y = np.log(whole.x), np.log(whole.y)
    slopes = least_squares_slopes(log_x, log_y)
    intercepts = log_y.mean(axis=1) - slopes * log_x.mean()
    return summary(whole, slopes, level, law="y = c·x^p", prefactor=float(np.exp(intercepts.mean())), offset=0.0)


def least_squares_slopes(x: Floats, y: Floats) -> Floats:
    """Return each seed's slope of y on x; x is ``[points]`` or ``[seeds, points]``, y ``[seeds, points]``."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray((centred * y).sum(axis=-1) / (centred**2).sum(axis=-1))


def need(found: Curves, *, points: int) -> None:
    """Refuse curves that are too short or have no seed.

    Raises:
        DataError: fewer than ``points`` abscissae, or no seed.
    """
    if len(found.x) < points or not len(found.seeds):
        why = f" ({'; '.join(found.left_out)})" if found.left_out else ""
        raise DataError(
            f"{len(found.seeds)} seeds with {len(found.x)} different {found.x_name} are left{why}: "
            f"give at least one seed with {points}"
        )


def summary(found: Curves, per_seed: Floats, level: float, *, law: str, prefactor: float, offset: float) -> ExponentFit:
    """Put the interval over seeds around exponents; a seed whose exponent is NaN has none, and is named.

    Raises:
        DataError: no seed has an exponent.
    """
    has = np.isfinite(per_seed)
    lost = [str(seed) for seed, kept in zip(found.seeds, has, strict=True) if not kept]
    why = f"no exponent in seed {', '.join(lost)}: the curve does not follow {law} for any p"
    if not has.any():
        raise DataError(f"{why}; look at the curves before choosing a law")
    interval = seed_interval(per_seed[has], level=level)
    return ExponentFit(
        exponent=interval.mean,
        low=interval.low,
        high=interval.high,
        level=level,
        n_seeds=interval.n,
        sd=interval.sd,
        law=law,
        prefactor=prefactor,
        offset=offset,
        seeds=tuple(seed for seed, kept in zip(found.seeds, has, strict=True) if kept),
        per_seed=tuple(float(p) for p in per_seed[has]),
        x=tuple(float(value) for value in found.x),
        x_name=found.x_name,
        y_name=found.y_name,
        left_out=(*found.left_out, *([why] if lost else [])),
    )
