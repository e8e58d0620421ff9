"""Which rows of a table are wanted."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd

from normlab.errors import DataError, unknown_name

#: A pandas query, or for each column a value or a list of them.
Where: TypeAlias = str | Mapping[str, object] | None


@dataclass(frozen=True)
class Condition:
    """One condition that rows must meet, and the columns that it reads."""

    columns: frozenset[str]
    query: str = ""
    allowed: tuple[object, ...] = ()

    def holds(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of ``frame`` that meet it.

        Raises:
            UnknownNameError: a column that the table does not have.
            DataError: a query that pandas cannot evaluate.
        """
        for name in sorted(self.columns - set(frame.columns)):
            raise unknown_name("column", name, map(str, frame.columns))
        if not self.query:
            (name,) = self.columns
            return frame[_among(frame[name], self.allowed)]
        try:
            return frame.query(self.query, engine="python")
        except Exception as error:
            raise DataError(
                f"the condition {self.query!r} cannot be evaluated ({error}): "
                f"give a pandas query such as \"depth == 8 and site == 'stream'\""
            ) from error


def conditions(where: Where) -> tuple[Condition, ...]:
    """Return what ``where`` asks for as conditions that must all hold.

    A query is taken apart at its top-level ``and``, so that what concerns whole cells can be decided
    before any of their rows is read.
    """
    if where is None:
        return ()
    if isinstance(where, str):
        return tuple(Condition(_names(part), query=part) for part in _parts(where))
    return tuple(Condition(frozenset({name}), allowed=_values(value)) for name, value in where.items())


def matching(frame: pd.DataFrame, wanted: Iterable[Condition]) -> pd.DataFrame:
    """Return the rows of ``frame`` that meet every condition.

    Raises:
        UnknownNameError: a column that the table does not have.
        DataError: a query that pandas cannot evaluate.
    """
    for condition in wanted:
        frame = condition.holds(frame)
    return frame


def _parts(query: str) -> list[str]:
    try:
        tree = ast.parse(query.strip(), mode="eval").body
    except SyntaxError:
        return [query]  # pandas has its own syntax for odd names, and its own message for mistakes
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [ast.unparse(value) for value in tree.values]
    return [query]


def _names(query: str) -> frozenset[str]:
    try:
        tree = ast.parse(query.strip(), mode="eval")
    except SyntaxError:
        return frozenset()
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _values(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | tuple | set | frozenset | range) else (value,)


def _among(column: pd.Series, allowed: tuple[object, ...]) -> pd.Series:
    """Text is compared as text (``None`` as empty), numbers as numbers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.isin(["" if value is None else str(value) for value in allowed])
    return column.isin([value for value in allowed if value is not None]) | (column.isna() & (None in allowed))
