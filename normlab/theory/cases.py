"""Which predictions belong beside a table of measurements: its models, on the batches that they were measured on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import pandas as pd

from normlab.data import Random, Text
from normlab.errors import NormlabError
from normlab.schema import CELL_COLUMNS
from normlab.spec import ModelSpec

#: Columns that say what a model was run on.
_RUN: Final = ("data", "batch", "tokens")
#: Pairs of positions times sub-layers that one prediction may take: about 0.3 seconds and 50 MB for a million.
_LARGEST: Final = 2.5e7


@dataclass(frozen=True)
class Case:
    """One prediction.

    Attributes:
        spec: the model.
        columns: the cell's columns that the prediction shares with what was measured.
        source: what its batch is drawn from; ``None`` where that is not known, so that random tokens stand in.
        data_seed: the seed of the batch.
        reason: why there is no prediction.
    """

    spec: ModelSpec | None
    columns: Mapping[str, Any]
    source: Text | Random | None
    data_seed: int | None
    reason: str = ""

    @property
    def work(self) -> float:
        """Pairs of positions that are carried, times sub-layers."""
        if self.spec is None:
            return 0.0
        batch, tokens = int(self.columns["batch"]), int(self.columns["tokens"])
        pairs = batch * (batch + 1) / 2 if self.source is not None else min(batch, 2)
        sublayers = sum(depth * len(self.spec.sublayers(stack)) for stack, depth in self.spec.stacks.items())
        return pairs * tokens**2 * sublayers


def cases(table: pd.DataFrame, source: Text | Random | None = None, *, most: float = 6.5e7) -> tuple[Case, ...]:
    """Return what is to be predicted for the measured cells of ``table``.

    Every kind of model is predicted on the batches of the same seeds: all of them, or the first ones if all would
    take more than ``most`` pairs of positions times sub-layers.

    Args:
        table: the table of a sweep.
        source: what its batches were drawn from, where the column ``data`` does not say it.
        most: the limit.
    """
    needed = [*_RUN, "spec", "depth", "width", "placement"]
    if any(name not in table.columns for name in needed):
        return ()
    measured = table[table["source"] == "measured"]
    names = [name for name in CELL_COLUMNS if name in measured.columns and name not in ("model_seed", "data_seed")]
    varying = [name for name in ("spec", *_RUN, "loss") if name in names]
    found: list[Case] = []
    for _, rows in measured.groupby(varying, observed=True, dropna=False, sort=False):
        first = rows.iloc[0]
        columns = {name: _plain(first[name]) for name in names}
        found += _of_kind(columns, sorted(_seeds(rows)), source)
    return _within(found, most)


def _seeds(rows: pd.DataFrame) -> set[int]:
    if "data_seed" not in rows.columns:
        return set()
    return {int(seed) for seed in rows["data_seed"].dropna().unique()}


def _of_kind(columns: dict[str, Any], seeds: list[int], source: Text | Random | None) -> list[Case]:
    try:
        spec = spec_of(columns)
    except (NormlabError, ValueError, TypeError, KeyError) as error:
        return [Case(None, columns, None, None, f"the columns do not give the model back ({error})")]
    if columns["batch"] is None or columns["tokens"] is None:
        return [Case(None, columns, None, None, "the table does not say how many tokens a batch has")]
    drawn = redrawn(columns, source)
    found = [Case(spec, columns, drawn, seed) for seed in seeds] if drawn is not None else []
    found = found or [Case(spec, columns, None, None)]
    if found[0].work > _LARGEST:
        size = f"{columns['batch']} sequences of {columns['tokens']} tokens at depth {spec.depth}"
        return [Case(None, columns, None, None, f"{size} have more pairs of tokens than are followed here")]
    return found


def redrawn(columns: Mapping[str, Any], source: Text | Random | None = None) -> Text | Random | None:
    """Return what the batches of a cell can be drawn from again, or nothing where its columns do not say it.

    Args:
        columns: with ``data``, ``batch`` and ``tokens``.
        source: what they were drawn from, if that is known; it counts where it gives the same columns.
    """
    batch, tokens, name = int(columns["batch"]), int(columns["tokens"]), str(columns["data"])
    candidates: list[Text | Random] = [] if source is None else [source]
    if name == "text:pydoc":
        candidates.append(Text(batch, tokens))
    if name.startswith("random:") and name[7:].isdigit():
        candidates.append(Random(batch, tokens, int(name[7:])))
    for candidate in candidates:
        try:
            if candidate.columns() == {"data": name, "batch": batch, "tokens": tokens}:
                return candidate
        except NormlabError:
            continue
    return None


def _within(found: list[Case], most: float) -> tuple[Case, ...]:
    """Leave out batches of the last seeds until the work is within the limit; the first always stays."""
    seeds = sorted({case.data_seed for case in found if case.data_seed is not None})
    for keep in range(len(seeds), 0, -1):
        kept = tuple(case for case in found if case.data_seed is None or case.data_seed in seeds[:keep])
        if keep == 1 or sum(case.work for case in kept) <= most:
            return kept
    return tuple(found)


def spec_of(columns: Mapping[str, Any]) -> ModelSpec:
    """Return the model whose columns these are: the inverse of ``ModelSpec.columns``.

    Raises:
        SpecError: the columns are not those of a valid model.
        ValueError: they are those of a model, but it does not have them.
    """
    known = [field.name for field in fields(ModelSpec) if columns.get(field.name) not in (None, "")]
    spec = ModelSpec(**{name: _field(name, columns[name]) for name in known})
    again = spec.columns()
    differs = [name for name in known if _text(again[name]) != _text(columns[name])]
    if differs:
        raise ValueError(f"{differs[0]} is {columns[differs[0]]!r}")
    return spec


def _text(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if pd.isna(value) or value == "":
        return None
    return value.item() if hasattr(value, "item") else value


def _field(name: str, value: Any) -> Any:
    """One column as what the field takes."""
    if name.endswith("_options"):
        return tuple(_pair(item) for item in str(value).split(","))
    if name == "placement" and "," in str(value):
        return tuple(str(value).split(","))
    return value == "on" if value in ("on", "off") else value


def _pair(item: str) -> tuple[str, Any]:
    name, _, value = item.partition("=")
    return name, _literal(value)


def _literal(text: str) -> Any:
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
