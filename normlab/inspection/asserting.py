"""Conditions on a table, such as ``stream.median_rms@last < 100``, for a lab's own checks.

The grammar::

    condition := subject ("<" | "<=" | ">" | ">=" | "==" | "!=") number
    subject   := "loss" | what "." quantity [":" sublayer] ["@" blocks]
    what      := a site of nl.SITES, or a parameter's role (down, q, norm_gain, ...)
    blocks    := "all" | "first" | "last" | number | number "-" number

Blocks are numbered from 1; 0 is the embedding; without ``@`` every block is meant, and every row must meet the
condition. Without ``:`` every sub-layer is meant, and of the stream only what it is after the whole block.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from normlab.errors import DataError, suggest
from normlab.inspection.finding import number
from normlab.table import QUANTITIES, SITES, SUBLAYERS

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM: Final = re.compile(
    r"\s*(?P<what>\w+)(?:\.(?P<quantity>\w+))?(?::(?P<sublayer>\w+))?(?:@(?P<blocks>\w+(?:-\w+)?))?"
    r"\s*(?P<op><=|>=|==|!=|<|>)\s*(?P<limit>[-+.\w]+)\s*"
)
_EXAMPLE: Final = "write it as in 'stream.median_rms@last < 100' or 'loss < 5'"


@dataclass(frozen=True)
class Condition:
    """A condition that was read.

    Attributes:
        text: as it was written.
        what: a site, a role, or ``loss``.
        quantity: the quantity.
        sublayer: only this sub-layer; all if empty.
        blocks: first and last block; ``None`` stands for all, and -1 for the last.
        op: how to compare.
        limit: with what.
    """

    text: str
    what: str
    quantity: str
    sublayer: str
    blocks: tuple[int, int] | None
    op: str
    limit: float


@dataclass(frozen=True)
class Outcome:
    """What became of a condition.

    Attributes:
        condition: the condition.
        holds: whether every row meets it.
        says: the outcome with numbers.
    """

    condition: Condition
    holds: bool
    says: str


def parse(text: str) -> Condition:
    """Read a condition.

    Raises:
        DataError: it does not follow the grammar, or names what does not exist.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise DataError(f"the condition {text!r} cannot be read: {_EXAMPLE}")
    what, quantity, sublayer = form["what"], form["quantity"] or "", form["sublayer"] or ""
    if what == "loss" and not quantity:
        quantity = "loss"
    if quantity not in QUANTITIES:
        near = suggest(quantity, QUANTITIES)
        raise DataError(
            f"the condition {text!r} names the quantity {quantity!r}, which does not exist{near or f': {_EXAMPLE}'}"
        )
    if sublayer and sublayer not in SUBLAYERS:
        raise DataError(
            f"the condition {text!r} names the sub-layer {sublayer!r}: choose one of {', '.join(SUBLAYERS)}"
        )
    return Condition(
        text, what, quantity, sublayer, _blocks(text, form["blocks"]), form["op"], _limit(text, form["limit"])
    )


def check(condition: Condition, table: pd.DataFrame) -> Outcome:
    """Say whether a table meets a condition.

    A row without a finite value does not meet it.

    Raises:
        DataError: the table has no row that it speaks of.
    """
    rows = _rows(condition, table)
    if rows.empty:
        raise DataError(f"the condition {condition.text!r} speaks of no row of the table{_near(condition, table)}")
    compare = _COMPARE[condition.op]
    values = rows["value"].to_numpy(dtype=float)
    # A row of which something was not finite holds what was left of it.
    sound = (values - values == 0) & (rows["status"] != "nonfinite").to_numpy()
    good = [bool(ok and compare(value, condition.limit)) for ok, value in zip(sound, values, strict=True)]
    count = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    if all(good):
        extreme = (
            f"values from {number(values.min())} to {number(values.max())}" if len(rows) > 1 else number(values[0])
        )
        return Outcome(condition, True, f"{condition.text}: holds in {count} ({extreme})")
    bad = [place for place, ok in enumerate(good) if not ok]
    first = rows.iloc[bad[0]]
    found = number(float(first["value"])) if sound[bad[0]] else f"no finite value, {first['status']}"
    more = f", and {len(bad) - 1} more of {count}" if len(bad) > 1 else ""
    return Outcome(condition, False, f"{condition.text}: fails{_where(first)} ({found}){more}")


def _limit(text: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise DataError(f"the condition {text!r} compares with {word!r}, which is no number: {_EXAMPLE}")
    return value


def _blocks(text: str, word: str | None) -> tuple[int, int] | None:
    if word is None or word == "all":
        return None
    if word in ("first", "last"):
        return (1, 1) if word == "first" else (-1, -1)
    first, _, last = word.partition("-")
    if not first.isdigit() or not (last or first).isdigit() or int(last or first) < int(first):
        raise DataError(f"the condition {text!r} asks for blocks {word!r}: give all, first, last, 3 or 2-5")
    return int(first), int(last or first)


def _rows(condition: Condition, table: pd.DataFrame) -> pd.DataFrame:
    rows = table[table["quantity"] == condition.quantity]
    if condition.what == "loss":
        return rows
    column = "site" if condition.what in SITES else "role"
    rows = rows[rows[column] == condition.what]
    if condition.sublayer:
        rows = rows[rows["sublayer"] == condition.sublayer]
    deepest = table.groupby("stack", observed=True)["layer"].max()
    last = rows["stack"].astype(object).map(deepest).astype("Int64")
    if condition.what == "stream" and not condition.sublayer:
        rows, last = _after_blocks(rows, last)
    if condition.blocks is None:
        kept = (rows["layer"] > 0) | rows["layer"].isna()
    elif condition.blocks == (-1, -1):
        kept = rows["layer"] == last
    else:
        kept = rows["layer"].between(*condition.blocks)
    return rows[kept.fillna(False).astype(bool)]


def _after_blocks(rows: pd.DataFrame, last: pd.Series) -> tuple[pd.DataFrame, pd.Series]:
    """Keep for each block the row of its last sub-layer that has one."""
    known = rows[rows["status"] != "parallel"]
    rank = known["sublayer"].astype(str).map({name: place for place, name in enumerate(SUBLAYERS)})
    end = rank.groupby([known["stack"].astype(str), known["layer"]]).transform("max")
    kept = known[(rank == end).to_numpy()]
    return kept, last.loc[kept.index]


def _near(condition: Condition, table: pd.DataFrame) -> str:
    known = sorted({*SITES, *(str(role) for role in table["role"].unique() if str(role)), "loss"})
    if condition.what not in known:
        return f": {condition.what!r} is neither a site nor a role that it has{suggest(condition.what, known)}"
    return f": it was not recorded for {condition.what!r}, or the model has no such block"


def _where(row: pd.Series) -> str:
    if pd.isna(row["layer"]):
        return ""
    head = "" if pd.isna(row["head"]) else f", head {row['head']}"
    return f" in block {row['layer']}, {row['sublayer']}{head}"
