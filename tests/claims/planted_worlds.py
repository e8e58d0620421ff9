"""Worlds that are not ours, planted in the rows that a claim reads."""

from collections.abc import Callable

import numpy as np
import pandas as pd

World = Callable[[pd.DataFrame], pd.DataFrame]


def _values(change: Callable[[pd.DataFrame], np.ndarray]) -> World:
    return lambda rows: rows.assign(value=change(rows))


def _numbers(rows: pd.DataFrame, column: str) -> np.ndarray:
    return np.maximum(rows[column].fillna(1).to_numpy(dtype=float), 1.0)


def _only(rows: pd.DataFrame, quantities: tuple[str, ...], change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    chosen = rows["quantity"].isin(quantities).to_numpy(dtype=bool)
    value = rows["value"].to_numpy(dtype=float)
    return np.where(chosen, change(value), value)


def shuffled_layers(rows: pd.DataFrame) -> pd.DataFrame:
    """The layer column of every model in another order, but for the last layer's sub-layers."""
    order = {layer: np.random.default_rng(int(layer)).random() for layer in rows["layer"].dropna().unique()}
    ranks = rows.groupby("spec", observed=True)["layer"].transform(
        lambda layers: layers.map(dict(zip(sorted(layers.dropna().unique()), sorted(
            layers.dropna().unique(), key=lambda layer: order[layer]), strict=True)))
    )  # fmt: skip
    return rows.assign(layer=ranks.astype("Int64"))


def renamed(column: str, **names: str) -> World:
    """Labels of a column exchanged: what is called post is pre."""
    return lambda rows: rows.assign(
        **{column: rows[column].astype(str).replace({old.replace("_", "-"): new for old, new in names.items()})}
    )


WORLDS: dict[str, World] = {
    "every number is huge": _values(lambda rows: np.full(len(rows), 1e6)),
    "every number is zero": _values(lambda rows: np.zeros(len(rows))),
    "every number is one": _values(lambda rows: np.ones(len(rows))),
    "gradients are constant": _values(lambda rows: _only(rows, ("grad_norm", "l2"), np.ones_like)),
    "streams are constant": _values(lambda rows: _only(rows, ("mean_square", "token_overlap"), np.ones_like)),
    "updates are correlated": _values(lambda rows: _only(rows, ("alignment",), lambda value: 0 * value + 0.5)),
    "blocks are copies": _values(lambda rows: _only(rows, ("update_ratio",), np.ones_like)),
    "depth multiplies": _values(lambda rows: rows["value"].to_numpy(dtype=float) * _numbers(rows, "depth") ** 2),
    "layers multiply": _values(lambda rows: rows["value"].to_numpy(dtype=float) * _numbers(rows, "layer") ** 2),
    "larger batches do not help beyond 32": _values(
        lambda rows: rows["value"].to_numpy(dtype=float) * np.maximum(_numbers(rows, "tokens") / 32, 1.0) ** 0.5
    ),
    "every number doubles": _values(lambda rows: 2 * rows["value"].to_numpy(dtype=float)),
    "gradients decay by a factor a layer": _values(
        lambda rows: rows["value"].to_numpy(dtype=float) * 1.5 ** (_numbers(rows, "layer") / 2)
    ),
    "gradients grow with the width": _values(
        lambda rows: rows["value"].to_numpy(dtype=float) * _numbers(rows, "call") ** 0.6
    ),
    "float32 cancels at 1000 too": _values(
        lambda rows: np.where(rows["name"].astype(str).str.startswith("difference"), 1.0, rows["value"])
    ),
    "layers are shuffled": shuffled_layers,
    "post is pre": renamed("placement", post="pre", pre="post"),
    "b2t is post": renamed("placement", b2t="post", post="b2t"),
    "mixed is pre": renamed("placement", mix_ln="pre", pre="mix-ln"),
}
