"""How the cells of a table are told apart: one panel for each kind of model, one line for each depth."""

from collections.abc import Iterator, Sequence

import pandas as pd

from normlab.table import CELL_COLUMNS, COLUMNS, key

#: Depths are lines and seeds are repetitions; a spec's id says nothing that its fields do not say.
_NOT_PANELS = ("depth", "spec", "model_seed", "data_seed")
#: Columns that mostly follow from what else is known of a row, and tell kinds apart where they do not.
_FOLLOW = {"encoder_depth": ("depth",), "dtype": ("depth", "stack", "layer", "sublayer", "site", "quantity", "role")}
#: Columns of a measurement that make two curves different although the cell is the same.
_MEASURED = ("stack", "call", "step", "dtype")
#: Values that speak for themselves, without the column's name.
_PLAIN = ("placement", "norm", "init", "stack", "kind", "sublayer")
_SUBLAYERS = {"attn": "attention", "mlp": "MLP", "cross": "cross-attention"}


def panel_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns that tell the kinds of models of ``frame`` apart, and no more of them than needed."""
    names = [*_MEASURED, *(name for name in key(frame.columns) if name not in COLUMNS)]
    varying = [name for name in names if name not in _NOT_PANELS and frame[name].nunique(dropna=False) > 1]
    varying = [name for name in varying if name not in _FOLLOW or _splits(frame, name, varying)]
    ordered = sorted(varying, key=lambda name: list(CELL_COLUMNS).index(name) if name in CELL_COLUMNS else -1)
    kinds = frame[ordered].drop_duplicates()
    chosen: list[str] = []
    found = 1
    for name in ordered:
        split = len(kinds[[*chosen, name]].drop_duplicates())
        if split > found:
            chosen, found = [*chosen, name], split
    return chosen


def _splits(frame: pd.DataFrame, name: str, varying: Sequence[str]) -> bool:
    """Whether rows that agree in all else differ in ``name``, and would be taken for seeds of one kind."""
    same = [other for other in dict.fromkeys([*varying, *_FOLLOW[name]]) if other not in _FOLLOW]
    once = frame[[*(other for other in same if other in frame.columns), name]].drop_duplicates()
    return bool(once.duplicated(list(once.columns[:-1])).any())


def panel_label(names: Sequence[str], values: Sequence[object]) -> str:
    """Return the words that stand over a panel, such as ``pre · width 128``."""
    return " · ".join(_words(name, value) for name, value in zip(names, values, strict=True))


def _words(name: str, value: object) -> str:
    text = {"True": "on", "False": "off", "": "none"}.get(str(value), str(value))
    if name == "sublayer":
        return sublayer_words(text)
    return text if name in _PLAIN and text != "none" or name == "placement" else f"{name.replace('_', ' ')} {text}"


def sublayer_words(name: str) -> str:
    """Return what a sub-layer is called over a panel."""
    return _SUBLAYERS.get(name, name)


def label_rows(frame: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Return each row's panel label."""
    if not names or frame.empty:
        return pd.Series("", index=frame.index, dtype=object)
    kinds = frame[list(names)].drop_duplicates()
    labels = {tuple(row): panel_label(names, row) for row in kinds.itertuples(index=False, name=None)}
    return pd.Series(
        [labels[tuple(row)] for row in frame[list(names)].itertuples(index=False, name=None)],
        index=frame.index,
        dtype=object,
    )


def split_panels(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each panel's label and rows, in the order of the table."""
    labels = label_rows(frame, names)
    for label in labels.unique():
        yield str(label), frame[labels == label]
