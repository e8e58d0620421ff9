"""The aggregated rows behind the plots: rounded in the page, in full as JSON."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from normlab.digits import cell, minus
from normlab.plots import Plot
from normlab.table import SCHEMA_VERSION

#: More layers than this are thinned out in the page, never in the JSON.
_MOST_LAYERS: Final = 72
_NOT_EXPORTED: Final = ("x", "panel")


@dataclass(frozen=True)
class Cell:
    """A mean with its interval, as the page shows it.

    Attributes:
        mean: rounded.
        interval: rounded, in brackets; empty with one seed.
        note: what is missing.
    """

    mean: str
    interval: str = ""
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of the page.

    Attributes:
        caption: what it holds.
        corner: what the rows' headings are.
        columns: the columns' headings.
        rows: each row's heading and cells.
    """

    caption: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def grids(plot: Plot, points: pd.DataFrame) -> tuple[Grid, ...]:
    """Return the tables behind a plot: one a panel with a column a depth, or one with a column a kind of model."""
    measured = points[points["source"] == "measured"]
    if not plot.panels:
        return (_grid(plot.title, "depth L", measured, "depth", "panel", _kind),)
    return tuple(
        _grid(_caption(plot, str(panel)), "layer ℓ", measured[measured["panel"] == panel], "layer", "depth", _depth)
        for panel in measured["panel"].unique()
    )


def _caption(plot: Plot, panel: str) -> str:
    return f"{plot.title}: {panel}" if panel else plot.title


def _kind(label: Any) -> str:
    return str(label) or "measured"


def _depth(label: Any) -> str:
    return f"L = {label}"


def _grid(caption: str, corner: str, points: pd.DataFrame, down: str, across: str, words: Any) -> Grid:
    columns = list(dict.fromkeys(points[across] if across == "panel" else sorted(points[across])))
    found = {(row[down], row[across]): row for row in points.to_dict("records")}
    layers = sorted({int(layer) for layer in points[down]})
    shown = _thinned(layers)
    rows = tuple((f"{layer}", tuple(_cell(found.get((layer, column))) for column in columns)) for layer in shown)
    left = f" ({len(shown)} of {len(layers)} layers; all are in the JSON file)" if len(shown) < len(layers) else ""
    return Grid(f"{caption}{left}", corner, tuple(words(column) for column in columns), rows)


def _thinned(layers: Sequence[int]) -> list[int]:
    """The first layers, then ever fewer, and the last."""
    if len(layers) <= _MOST_LAYERS:
        return list(layers)
    places = {0, *np.geomspace(1, len(layers) - 1, 40).round().astype(int).tolist()}
    return [layers[place] for place in sorted(places)]


def _cell(row: Mapping[Any, Any] | None) -> Cell:
    if row is None:
        return Cell("")
    missing = []
    if row["nonfinite"]:
        missing.append(f"{row['nonfinite']} not finite")
    if row["zeros"] and math.isnan(row["centre"]):
        missing.append(f"{row['zeros']} exactly zero")
    if math.isnan(row["centre"]):
        return Cell("–", note=", ".join(missing) or "no value")
    interval = "" if math.isnan(row["low"]) else f"[{cell(row['low'])}, {cell(row['high'])}]"
    return Cell(cell(row["centre"]), interval)


def as_precise(value: float, width: float) -> str:
    """Return ``value`` with as many decimals as an interval of that ``width`` gives meaning to."""
    if not (math.isfinite(value) and math.isfinite(width)) or width <= 0:
        return cell(value)
    decimals = max(1 - math.floor(math.log10(width / 2)), 0)
    if decimals > 6 and abs(value) < 1e-3:
        return cell(value)
    decimals = min(decimals, 6)
    return minus(f"{value:.{decimals}f}")


def exported(plots: Mapping[str, tuple[Plot, pd.DataFrame]]) -> str:
    """Return the aggregated rows of all plots as JSON, with full precision; what is not a number is null."""
    content = {
        "format": "normlab aggregated rows",
        "schema_version": SCHEMA_VERSION,
        "columns": {
            "centre": "mean over seeds, of logarithms where the average is geometric",
            "low, high": "Student t interval of that mean, 95 %; of theory, one standard deviation of a seed away",
            "smallest, largest": "over seeds",
            "seeds, nonfinite, zeros": "how many seeds have a value, are not finite, are exactly zero",
        },
        "plots": {name: _export(plot, points) for name, (plot, points) in plots.items()},
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _export(plot: Plot, points: pd.DataFrame) -> dict[str, Any]:
    columns = [name for name in points.columns if name not in _NOT_EXPORTED]
    values = [[_plain(value) for value in points[name].tolist()] for name in columns]
    return {
        "title": plot.title,
        "rows_of_the_table": plot.needs.query,
        "average": plot.average,
        "columns": columns,
        "rows": [list(row) for row in zip(*values, strict=True)],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int | str) else None if pd.isna(value) else str(value)


def data_uri(text: str) -> str:
    """Return ``text`` as the address of a JSON file that the page itself holds."""
    return f"data:application/json;base64,{base64.b64encode(text.encode()).decode()}"
