"""Curves: y against x with one row a seed, taken from a table or from arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from normlab.errors import DataError, unknown_name
from normlab.fits.intervals import Floats
from normlab.table import key

#: A condition on a table's rows: a query, or allowed values of columns.
Condition: TypeAlias = Mapping[str, Any] | str | None
#: What every fit takes: a table, curves, or a pair (x, y) of arrays.
Data: TypeAlias = "pd.DataFrame | Curves | tuple[Any, Any]"


@dataclass(frozen=True, eq=False)
class Curves:
    """One curve a seed over common abscissae.

    Attributes:
        x: abscissae, increasing, ``[points]``.
        y: ordinates, ``[seeds, points]``; NaN where a seed has none.
        seeds: the seeds' names.
        x_name: what x is.
        y_name: what y is.
        left_out: what is missing and why, one sentence a reason.
    """

    x: Floats
    y: Floats
    seeds: tuple[int, ...]
    x_name: str = "x"
    y_name: str = "y"
    left_out: tuple[str, ...] = ()

    def positive(self) -> "Curves":
        """Leave out what has no logarithm, and say so."""
        keep = (self.y > 0) & (self.x > 0)
        lost = int((np.isfinite(self.y) & ~keep).sum())
        note = (f"{lost} {'point has' if lost == 1 else 'points have'} no logarithm",) if lost else ()
        return self._with(self.x, np.where(keep, self.y, np.nan), self.seeds, note)

    def balanced(self) -> "Curves":
        """Keep the abscissae that at least half of the seeds have, then the seeds that have them all.

        So every seed's fit uses the same points, and a few cells that failed cannot tilt the average.
        """
        has = np.isfinite(self.y)
        points = has.mean(axis=0) >= 0.5
        seeds = np.logical_and(has[:, points].all(axis=1), points.any())
        lost_x = [f"{value:g}" for value in self.x[~points]]
        lost_seeds = [str(seed) for seed, kept in zip(self.seeds, seeds, strict=True) if not kept]
        notes = [f"{self.x_name} {', '.join(lost_x)} left out: fewer than half of the seeds have it"] if lost_x else []
        if lost_seeds:
            notes.append(f"{_plural('seed', lost_seeds)} left out: no value at some {self.x_name}")
        names = tuple(seed for seed, kept in zip(self.seeds, seeds, strict=True) if kept)
        return self._with(self.x[points], self.y[seeds][:, points], names, tuple(notes))

    def _with(self, x: Floats, y: Floats, seeds: tuple[int, ...], notes: tuple[str, ...]) -> "Curves":
        return Curves(x, y, seeds, self.x_name, self.y_name, (*self.left_out, *notes))


def curves(data: Data, y: str = "", *, x: str = "depth", where: Condition = None, seed: str = "model_seed") -> Curves:
    """Take one curve a seed from a table, from arrays, or as it is.

    Args:
        data: a table; or ``(x, y)`` with y ``[points]`` or ``[seeds, points]``; or :class:`Curves`.
        y: the quantity, such as ``"grad_norm"``; not used with arrays.
        x: the column that is the abscissa, such as ``"depth"`` or ``"layer"``; not used with arrays.
        where: which rows, as a query (``"role == 'down' and layer == depth"``) or as allowed values of
            columns (``{"site": "stream", "layer": [1, 2]}``).
        seed: the column that tells seeds apart.

    Raises:
        DataError: no row is left, or a seed has several rows at the same abscissa, so that different
            things would be mixed.
        UnknownNameError: a column that the table does not have.

    >>> curves(([1, 2, 4], [[3.0, 5.0, 9.0]])).seeds
    (0,)
    """
    if isinstance(data, Curves):
        return data
    if isinstance(data, pd.DataFrame):
        return _from_table(data, y, x, where, seed)
    return _from_arrays(*data)


def choose(table: pd.DataFrame, where: Condition) -> pd.DataFrame:
    """Return the rows of ``table`` that meet the condition.

    Raises:
        DataError: a query that pandas cannot evaluate.
        UnknownNameError: a column that the table does not have.
    """
    if where is None:
        return table
    if isinstance(where, str):
        try:
            return table.query(where)
        except Exception as error:
            raise DataError(f"the query {where!r} cannot be evaluated ({error}): use the table's columns") from error
    keep = pd.Series(True, index=table.index)
    for name, allowed in where.items():
        if name not in table.columns:
            raise unknown_name("column", name, table.columns)
        several = isinstance(allowed, list | tuple | set | frozenset | range)
        keep &= table[name].isin(list(allowed) if several else [allowed]).fillna(False).astype(bool)
    return table[keep]


def _from_arrays(x: Any, y: Any) -> Curves:
    abscissa = np.asarray(x, dtype=np.float64).ravel()
    ordinate = np.atleast_2d(np.asarray(y, dtype=np.float64))
    if ordinate.ndim != 2 or ordinate.shape[1] != len(abscissa):
        raise DataError(
            f"x has {len(abscissa)} points and y has shape {ordinate.shape}: give y as [points] or [seeds, points]"
        )
    order = np.argsort(abscissa, kind="stable")
    if (np.diff(abscissa[order]) == 0).any():
        raise DataError("x has the same point twice: give each point once")
    ordinate = np.where(np.isfinite(ordinate), ordinate, np.nan)
    return Curves(abscissa[order], ordinate[:, order], tuple(range(len(ordinate))))


def _from_table(table: pd.DataFrame, y: str, x: str, where: Condition, seed: str) -> Curves:
    for name in (x, seed, "quantity", "value"):
        if name not in table.columns:
            raise unknown_name("column", name, table.columns)
    rows = choose(table, where)
    rows = rows[(rows["quantity"] == y) & rows[x].notna() & rows[seed].notna()] if y else rows[:0]
    if rows.empty:
        given = f"quantity {y!r} under {where!r}" if y else "no quantity"
        raise DataError(f"no row has {given}: choose a quantity and rows that the table has")
    if rows.duplicated([seed, x]).any():
        raise DataError(_several(rows, x, seed))
    values = rows["value"].where(_usable(rows))
    grid = pd.DataFrame({"seed": rows[seed].astype("int64"), "x": rows[x].astype("float64"), "value": values})
    wide = grid.pivot(index="seed", columns="x", values="value")
    return Curves(
        x=wide.columns.to_numpy(dtype=np.float64),
        y=wide.to_numpy(dtype=np.float64),
        seeds=tuple(int(name) for name in wide.index),
        x_name=x,
        y_name=y,
        left_out=_reasons(rows),
    )


def _several(rows: pd.DataFrame, x: str, seed: str) -> str:
    twice = rows[rows.duplicated([seed, x], keep=False)]
    varying = [
        f"{name} ({', '.join(str(value) for value in twice[name].unique()[:4])})"
        for name in key(twice.columns)
        if name not in (x, seed) and twice[name].nunique(dropna=False) > 1
    ]
    return (
        f"one seed has several rows at the same {x}, which differ in {'; '.join(varying[:4]) or 'nothing'}: "
        f"choose among them with where="
    )


def _usable(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows have a value: one whose tensor was not finite may hold the finite mean of what was left of it."""
    finite: NDArray[np.bool_] = np.isfinite(rows["value"].to_numpy(dtype=np.float64))
    if "status" not in rows.columns:
        return finite
    return finite & (rows["status"].astype(object) != "nonfinite").to_numpy(dtype=bool)


def _reasons(rows: pd.DataFrame) -> tuple[str, ...]:
    """How many rows have no value, by status."""
    missing = ~_usable(rows)
    if "status" not in rows.columns:
        return (f"{missing.sum()} of {len(rows)} rows have no finite value",) if missing.any() else ()
    counts = rows.loc[missing, "status"].astype(str).value_counts()
    return tuple(f"{count} of {len(rows)} rows have status {status!r}" for status, count in sorted(counts.items()))


def _plural(noun: str, names: list[str]) -> str:
    return f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names)}"
