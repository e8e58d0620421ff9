"""Whether a table meets conditions such as ``stream.median_rms@last < 100``, for a lab's own checks."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from normlab.digits import number
from normlab.errors import DataError, counted
from normlab.inspection.conditions import Condition
from normlab.inspection.finding import listed, place, ranges
from normlab.recording import Address
from normlab.table import SITES, SUBLAYERS

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True)
class Outcome:
    """What became of a condition.

    Attributes:
        condition: the condition.
        holds: whether every row meets it; ``None`` where the table has no row that it speaks of.
        says: the outcome with numbers.
    """

    condition: Condition
    holds: bool | None
    says: str

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values for JSON."""
        return {"condition": self.condition.text, "holds": self.holds, "says": self.says}


def check(condition: Condition, table: pd.DataFrame) -> Outcome:
    """Say whether a table meets a condition.

    A row without a finite value does not meet it. Of the rows that do not, the one that is farthest off is named.

    Raises:
        DataError: the table has no row that it speaks of.
    """
    rows = _rows(condition, table)
    compare = _COMPARE[condition.op]
    values = rows["value"].to_numpy(dtype=float)
    # A row of which something was not finite holds what was left of it.
    sound = (values - values == 0) & (rows["status"] != "nonfinite").to_numpy()
    good = [bool(ok and compare(value, condition.limit)) for ok, value in zip(sound, values, strict=True)]
    count = counted(len(rows), "row")
    if all(good):
        extreme = (
            f"values from {number(values.min())} to {number(values.max())}" if len(rows) > 1 else number(values[0])
        )
        return Outcome(condition, True, f"{condition.text}: holds in {count} ({extreme})")
    bad = [index for index, ok in enumerate(good) if not ok]
    worst = max(bad, key=lambda index: abs(values[index] - condition.limit) if sound[index] else math.inf)
    row = rows.iloc[worst]
    found = number(float(row["value"])) if sound[worst] else f"no finite value, {row['status']}"
    more = f", and in {len(bad) - 1} more of {count}" if len(bad) > 1 else ""
    stacks = {str(stack) for stack in table["stack"].unique()} - {""}
    return Outcome(condition, False, f"{condition.text}: fails{_where(row, stacks)} ({found}){more}")


def outcome(condition: Condition, table: pd.DataFrame) -> Outcome:
    """Return what :func:`check` does; where the table has no row that a condition speaks of, say so."""
    try:
        return check(condition, table)
    except DataError as error:
        return Outcome(condition, None, str(error))


def _rows(condition: Condition, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that a condition speaks of, at least one."""
    rows = table[table["quantity"] == condition.quantity]
    if condition.what == "loss":
        return _some(rows, condition, "no loss was recorded")
    rows = rows[rows["site" if condition.what in SITES else "role"] == condition.what]
    if condition.sublayer:
        rows = rows[rows["sublayer"] == condition.sublayer]
    elif condition.what == "stream":
        rows = _after_blocks(rows)
    rows = _some(rows, condition, f"the model has no {condition.what}, or its {condition.quantity} was not recorded")
    rows = _of_stack(rows, condition)
    depths = table.groupby(table["stack"].astype(str))["layer"].max()
    last = rows["stack"].astype(str).map(depths)
    if condition.blocks is None:
        # What only the embedding has is meant without being asked for.
        blocks = (rows["layer"] > 0) | rows["layer"].isna()
        kept = blocks if blocks.any() else ~blocks
    elif condition.blocks == (-1, -1):
        kept = rows["layer"] == last
    else:
        _check_depth(condition, int(last.max()))
        kept = rows["layer"].between(*condition.blocks)
    shared = "" if condition.what in SITES else " (what blocks share stands at the first of them)"
    return _some(rows[kept.fillna(False).astype(bool)], condition, f"those blocks have no {condition.what}{shared}")


def _of_stack(rows: pd.DataFrame, condition: Condition) -> pd.DataFrame:
    """Return the rows of the stack that a condition names; it must name one where several have a block it speaks of."""
    stacks = sorted({str(stack) for stack in rows["stack"]}, key=lambda stack: (not stack.startswith("encoder"), stack))
    if condition.stack:
        own = rows[rows["stack"] == condition.stack]
        return _some(own, condition, f"{condition.what} is in the {listed(stacks)} only")
    if len(stacks) > 1 and condition.blocks is not None:
        before, _, after = condition.text.partition("@")
        spelt = " or ".join(f"'{before}@{stack}:{after}'" for stack in stacks)
        raise DataError(
            f"the condition {condition.text!r} does not say which stack, and the model has {len(stacks)} that have "
            f"{condition.what}: write {spelt}"
        )
    return rows


def _check_depth(condition: Condition, depth: int) -> None:
    assert condition.blocks is not None
    if condition.blocks[1] > depth:
        asked = ranges(range(condition.blocks[0], condition.blocks[1] + 1))
        stack = condition.stack or "model"
        raise DataError(
            f"the condition {condition.text!r} asks for block{'s' * ('-' in asked)} {asked}, and the {stack} has "
            f"{counted(depth, 'block')}: give blocks from 1 to {depth}, or 0 for the embedding"
        )


def _some(rows: pd.DataFrame, condition: Condition, why: str) -> pd.DataFrame:
    if rows.empty:
        raise DataError(f"the condition {condition.text!r} speaks of no row of the table: {why}")
    return rows


def _after_blocks(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep for each block the row of its last sub-layer that has one."""
    known = rows[rows["status"] != "parallel"]
    kind = known["sublayer"].astype(str).map({name: rank for rank, name in enumerate(SUBLAYERS)})
    # A block that has several sub-layers of a kind numbers them: attn, mlp, attn 2, mlp 2.
    turn = known["name"].astype(str).str.extract(r" (\d+)$", expand=False).fillna("1").astype(int)
    rank = turn * len(SUBLAYERS) + kind
    end = rank.groupby([known["stack"].astype(str), known["layer"]]).transform("max")
    return known[(rank == end).to_numpy()]


def _where(row: pd.Series, stacks: set[str]) -> str:
    if pd.isna(row["layer"]):
        return ""
    head = "" if pd.isna(row["head"]) else f", head {row['head']}"
    at = Address(str(row["stack"]), int(row["layer"]), str(row["sublayer"]), name=str(row["name"]))
    return f" in {place(at, stacks)}{head}"
