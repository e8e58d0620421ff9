"""Which rows may be compared: models that differ in depth, width and seed alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from normlab.claims.evidence import QUANTITY
from normlab.errors import DataError
from normlab.table import COLUMNS, key

#: What a claim needs to know about each row, beyond the measurement itself.
NEEDED = ("kind", "placement", "norm", "attention", "depth", "width", "final_norm", "tokens", "model_seed")
#: Cell columns that say which seed, or that follow from others.
_FOLLOWS = ("model_seed", "data_seed", "spec", "depth", "width", "encoder_depth", "mlp_width", "head_width")
#: What a domain always names, even where it does not vary.
_DOMAIN = ("placement", "norm", "init", "activation", "attention", "final_norm", "kind", "heads")
#: What says on what the models were run.
_DATA = ("data", "batch", "tokens")


@dataclass(frozen=True, eq=False)
class Group:
    """The rows of models that differ in depth, width and seed alone.

    Attributes:
        model: the values of the cell columns that define them.
        data: what they were run on, in words.
        by_width: the rows of each width, the widest first.
    """

    model: dict[str, object]
    data: str
    by_width: tuple[tuple[int, pd.DataFrame], ...]


def at_start(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows measured at initialisation.

    Raises:
        DataError: the table lacks a column of a sweep.
    """
    missing = [name for name in (*COLUMNS, *NEEDED) if name not in table.columns]
    if missing:
        raise DataError(
            f"a claim is judged on the table of a sweep, whose rows say which model and seed they come from, and this "
            f"one has no {', '.join(repr(name) for name in missing)}: give that of nl.sweep or nl.load"
        )
    return table[(table["source"] == "measured") & (table["step"] == 0).fillna(False).astype(bool)]


def groups(rows: pd.DataFrame, compared: Sequence[str] = ()) -> Iterator[Group]:
    """Yield the rows that may be compared, group by group, in the table's order.

    Args:
        rows: rows of one regime.
        compared: cell columns in which models may differ within a group.
    """
    cell = [name for name in key(rows.columns) if name not in COLUMNS]
    same = [*(name for name in cell if name not in (*_FOLLOWS, *compared)), "stack"]
    keyed = rows.assign(**{f"{name}/width": ratio for name, ratio in _ratios(rows).items()})
    split = [name for name in (*same, *keyed.columns[len(rows.columns) :]) if keyed[name].nunique(dropna=False) > 1]
    parts = keyed.groupby(split, observed=True, dropna=False, sort=False) if split else [((), keyed)]
    for _, part in parts:
        yield _group(part, same, split)


def _ratios(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Widths inside a block, relative to the stream's: a width sweep scales them along."""
    heads = rows["heads"].astype("Float64") if "heads" in rows.columns else 1.0
    ratios = {"mlp_width": 1.0, "head_width": heads}
    return {
        name: (rows[name].astype("Float64") * factor / rows["width"].astype("Float64")).round(6)
        for name, factor in ratios.items()
        if name in rows.columns
    }


def _group(rows: pd.DataFrame, same: Sequence[str], varying: Sequence[str]) -> Group:
    first = rows.iloc[0]
    domain = _DOMAIN if first["placement"] else ()
    names = [*(name for name in domain if name in same), *(name for name in varying if name not in _DATA)]
    widths = sorted((int(width) for width in rows["width"].unique()), reverse=True)
    return Group(
        model={name: _plain(first[name]) for name in dict.fromkeys(names)},
        data=_data_words(first),
        by_width=tuple((width, rows[rows["width"] == width]) for width in widths),
    )


def _data_words(first: pd.Series) -> str:
    source = str(first.get("data", "")) or "data"
    if source == QUANTITY:
        return "computed from seeded draws"
    batch, tokens = first.get("batch", pd.NA), first["tokens"]
    return f"{source}, {f'{batch} × ' if pd.notna(batch) else ''}{tokens} {'token' if tokens == 1 else 'tokens'}"


def _plain(value: object) -> object:
    """A cell's value as JSON has it."""
    if pd.isna(value):  # type: ignore[call-overload]
        return None
    return value.item() if hasattr(value, "item") else value
