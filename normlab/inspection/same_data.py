"""Whether two runs are of the same data."""

from collections.abc import Mapping
from typing import Final

import pandas as pd

#: Columns that say what a cell ran on, in words.
_SAID: Final[Mapping[str, str]] = {
    "data": "text",
    "batch": "number of sequences",
    "tokens": "tokens in each sequence",
    "loss": "loss",
}


def differing(a: pd.DataFrame, b: pd.DataFrame) -> tuple[str, ...]:
    """Say in what the data of two tables differ: ``tokens in each sequence (A: 64, B: 32)``.

    A text of another name with the same content is the same. Seeds are pairs where both tables have them.
    """
    found = []
    for column, words in _SAID.items():
        one, two = _values(a, column), _values(b, column)
        if one and two and {_content(value) for value in one} != {_content(value) for value in two}:
            found.append(f"{words} (A: {' and '.join(one)}; B: {' and '.join(two)})")
    if not paired(a, b, "data_seed"):
        one, two = _values(a, "data_seed"), _values(b, "data_seed")
        found.append(f"seed that the windows of text are drawn with (A: {one[0]}; B: {two[0]})")
    # What else differs says why the tokens do.
    if not found and (one := _values(a, "fed")) and (two := _values(b, "fed")) and {*one} != {*two}:
        found.append("tokens that the text was turned into, or in which of them are masked")
    return tuple(found)


def paired(a: pd.DataFrame, b: pd.DataFrame, seed: str) -> bool:
    """Say whether rows of two tables belong together only if they agree in a seed.

    One batch each is compared whatever it was drawn with.
    """
    one, two = _values(a, seed), _values(b, seed)
    return not (seed == "data_seed" and len(one) == len(two) == 1 and one != two and not _values(a, "model_seed"))


def _values(table: pd.DataFrame, column: str) -> list[str]:
    if column not in table.columns:
        return []
    return [text for value in table[column].dropna().unique() if (text := str(value))]


def _content(value: str) -> str:
    """Return what tells a text from others: of a file the hash at the end of its name."""
    return value.rpartition("-")[2] if value.startswith("text:") else value
