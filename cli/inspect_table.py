"""A data frame of numbers as a table for people: no number is cut, however narrow the terminal."""

import math
from typing import TYPE_CHECKING, Final

from normlab.digits import cell, deviation

if TYPE_CHECKING:
    import pandas as pd

#: Columns of words; they and the block's number stand before the numbers, in every part of a table that is folded.
_TEXT: Final = ("stack", "sublayer", "site", "status")
_KEYS: Final = (*_TEXT, "layer")
#: Columns of ratios of two models, which can be so near to 1 that three digits do not tell.
_RATIOS: Final = ("ratio", "ratio_added", "grad_ratio")


def layer_table(frame: "pd.DataFrame", width: int) -> str:
    """Return the columns of ``frame`` as a table, folded into several where they are wider than ``width``.

    A stack that is the same in every row is left out.
    """
    names = [str(name) for name in frame.columns if name != "stack" or frame["stack"].nunique() > 1]
    columns = {name: _column(name, frame[name].tolist()) for name in names}
    keys = [columns[name] for name in names if name in _KEYS]
    parts = _folded([columns[name] for name in names if name not in _KEYS], width - _width(keys))
    return "\n\n".join("\n".join(_lines([*keys, *part])) for part in parts)


def _column(name: str, values: list[object]) -> list[str]:
    """Return the cells of a column, the three lines of its heading first, all of one width."""
    words = name.replace("_", " ").split()
    said = deviation if name in _RATIOS else cell
    cells = [*[""] * (3 - len(words)), *words, *(said(one) if isinstance(one, float) else str(one) for one in values)]
    wide = max(len(cell) for cell in cells)
    return [cell.ljust(wide) if name in _TEXT else cell.rjust(wide) for cell in cells]


def _folded(columns: list[list[str]], room: int) -> list[list[list[str]]]:
    """Split columns into the fewest parts that have room, as even as they can be."""
    for count in range(1, len(columns) + 1):
        each = math.ceil(len(columns) / count)
        parts = [columns[start : start + each] for start in range(0, len(columns), each)]
        if all(_width(part) <= room for part in parts):
            return parts
    return [[column] for column in columns] or [[]]


def _width(columns: list[list[str]]) -> int:
    return sum(2 + len(column[0]) for column in columns)


def _lines(columns: list[list[str]]) -> list[str]:
    rows = ["".join(f"  {cell}" for cell in row).rstrip() for row in zip(*columns, strict=True)]
    headings = [row for row in rows[:3] if row]
    return [*headings, "  " + "─" * (_width(columns) - 2), *rows[3:]]
