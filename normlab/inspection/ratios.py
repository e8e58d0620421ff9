"""What stands in two tables under the same key, as ratios."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd

from normlab.errors import DataError
from normlab.fits import seed_interval
from normlab.inspection.finding import turns
from normlab.inspection.same_data import paired
from normlab.table import CELL_COLUMNS, COLUMNS, SITES, SUBLAYERS, key

#: The quantity of each site that is compared; of parameters it is the gradient norm.
_OF_SITE: Final[Mapping[str, str]] = {"stream": "median_rms", "update": "update_ratio", "input": "rms", "branch": "rms"}
_PLACE: Final = ("stack", "layer", "sublayer", "site", "role", "name")
_SEEDS: Final = ("model_seed", "data_seed")
#: Columns that say how a cell was made and where it came from: they may differ between what is compared.
_SAYS: Final = ("spec", "model", "data", "batch", "tokens", "fed", "loss")


def ratios(one: pd.DataFrame, two: pd.DataFrame, *, strict: bool = True) -> list[dict[str, object]]:
    """Return rows of ``ratio``, and for streams of ``ratio_added``: table ``two`` over table ``one``.

    Seeds that both have are paired; the ratio is the geometric mean over them.

    Args:
        one: A's table.
        two: B's.
        strict: whether tables without a row in common are refused.

    Raises:
        DataError: a table holds several models, or they have nothing in common.
    """
    first, second = (_compared(table, name) for table, name in ((one, "A"), (two, "B")))
    known = [name for name in _SEEDS if name in first.columns and name in second.columns]
    seeds = [name for name in known if paired(one, two, name)]
    both = first.merge(second, on=[*_PLACE, *seeds], suffixes=("_a", "_b"), how="inner")
    if both.empty and strict:
        raise DataError("the two tables have no row in common: compare runs of the same stacks, sites and seeds")
    both = both[(both["value_a"] > 0) & (both["value_b"] > 0)]
    both = both.assign(log=np.log(both["value_b"] / both["value_a"]))
    rows = [_row(place, group["log"].tolist()) for place, group in both.groupby([*_PLACE], dropna=False, sort=False)]
    return [*rows, *_added(both, _ends(one))]


def _compared(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return place, seeds and value of the rows that are compared."""
    site, quantity = table["site"].astype(str), table["quantity"].astype(str)
    gradients = {other: "l2" for other in SITES if other.endswith("_grad")}
    wanted = site.map({**_OF_SITE, **gradients}).fillna("grad_norm") == quantity
    sound = (table["status"].astype(str) == "ok") & table["layer"].notna() & table["value"].notna()
    rows = table[wanted & sound & (table["source"].astype(str) == "measured")]
    varying = [
        column
        for column in key(rows.columns)
        if column not in (*_PLACE, *_SEEDS, *_SAYS, "quantity", "dtype") and rows[column].nunique(dropna=False) > 1
    ]
    if varying:
        cells = [column for column in varying if column in CELL_COLUMNS or column not in COLUMNS]
        what = (cells or varying)[0]
        found = rows[what].drop_duplicates().tolist()
        values = ", ".join(str(value) for value in found[:4])
        one = " and ".join(f"{column} == {rows[column].tolist()[0]!r}" for column in cells or [what])
        raise DataError(f'{name} holds several models or steps ({what} {values}): choose one with --where "{one}"')
    kept = [*_PLACE, *(seed for seed in _SEEDS if seed in rows.columns), "value"]
    frame = rows[kept].copy()
    for column in ("stack", "sublayer", "site", "role", "name"):
        frame[column] = frame[column].astype(str)
    if frame.duplicated([column for column in kept if column != "value"]).any():
        raise DataError(f"{name} has several rows for the same place (dtypes, calls or data): choose with --where")
    return frame


def _row(place: tuple[object, ...], logs: list[float]) -> dict[str, object]:
    interval = seed_interval(logs)
    ratio = math.exp(interval.mean)
    # The standard error of a geometric mean, to first order.
    se = ratio * interval.se if interval.n > 1 else float("nan")
    return {**dict(zip(_PLACE, place, strict=True)), "quantity": "ratio", "value": ratio, "se": se}


def _added(both: pd.DataFrame, ends: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield for each block the ratio of its stream over that after the block before."""
    streams = both[both["site"] == "stream"].merge(ends, on=[*ends.columns])
    for stack, group in streams.groupby("stack", sort=False):
        logs = group.groupby("layer")["log"].mean()
        places = group.drop_duplicates("layer").set_index("layer")[["sublayer", "name"]]
        for layer in logs.index:
            if layer - 1 in logs.index:
                value = math.exp(logs[layer] - logs[layer - 1])
                where = {"stack": stack, "layer": int(layer), **places.loc[layer].to_dict(), "site": "stream"}
                yield {**where, "quantity": "ratio_added", "value": value}


def _ends(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last place of each block's stream, whether or not there is a number."""
    rows = table[(table["site"] == "stream") & (table["quantity"] == _OF_SITE["stream"]) & table["layer"].notna()]
    text = {"stack": str, "sublayer": str, "name": str}
    places = rows[["stack", "layer", "sublayer", "name"]].astype(text).drop_duplicates()
    rank = turns(places["name"]) * len(SUBLAYERS) + places["sublayer"].map(SUBLAYERS.index)
    last = places.assign(rank=rank).sort_values("rank", kind="stable")
    return last.drop(columns="rank").drop_duplicates(["stack", "layer"], keep="last")
