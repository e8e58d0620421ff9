"""Seeds become a line and a band."""

from typing import Final, Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy import stats

Average: TypeAlias = Literal["geometric", "arithmetic"]

#: Confidence level of every band and interval that is drawn.
LEVEL: Final = 0.95

#: What a group of seeds becomes.
RESULTS: Final = ("centre", "low", "high", "smallest", "largest", "seeds", "nonfinite", "zeros", "estimated")


def aggregate(rows: pd.DataFrame, by: list[str], average: Average) -> pd.DataFrame:
    """Average ``rows`` over seeds within each group of ``by``.

    ``centre`` is the geometric or the arithmetic mean, ``low`` and ``high`` bound Student's t interval of the mean
    (of the logarithms, where the mean is geometric) at :data:`LEVEL`; of one seed they lie two standard errors of its
    own estimate away, where the column ``se`` has one (``estimated`` says so). A group in which a seed is not finite,
    or is exactly zero and so has no logarithm, has no centre: the other seeds would be a biased sample. ``nonfinite``
    and ``zeros`` count them.
    """
    logs = average == "geometric"
    value = rows["value"].to_numpy(dtype="float64")
    zero = (value == 0) | (rows["status"] == "exact-zero").to_numpy()
    bad = (rows["status"] == "nonfinite").to_numpy() | np.isinf(value)
    known = np.isfinite(value) & ~bad & ~(zero & logs)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(known, np.log(value) if logs else value, np.nan)
    own = rows["se"].to_numpy(dtype="float64") if "se" in rows else np.full(len(rows), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(own > 0, own / value if logs else own, np.nan)
    frame = rows[by].assign(scaled=scaled, bad=bad, zero=zero, own=own)
    groups = frame.groupby(by, observed=True, dropna=False, sort=False)
    summary = groups["scaled"].agg(["count", "mean", "std", "min", "max"]).assign(own=groups["own"].mean())
    counts = groups[["bad", "zero"]].sum()
    return _summarised(summary, counts, logs).reset_index()


def _summarised(summary: pd.DataFrame, counts: pd.DataFrame, logs: bool) -> pd.DataFrame:
    seeds = summary["count"].to_numpy(dtype="float64")
    hidden = counts["bad"].to_numpy(dtype="int64") + logs * counts["zero"].to_numpy(dtype="int64") > 0
    centre = np.where(hidden, np.nan, summary["mean"].to_numpy(dtype="float64"))
    own = np.where(seeds == 1, summary["own"].to_numpy(dtype="float64"), np.nan)
    half = np.where(seeds == 1, 2 * own, half_width(summary["std"].to_numpy(dtype="float64"), seeds))
    columns = {
        "centre": centre,
        "low": centre - half,
        "high": centre + half,
        "smallest": summary["min"].to_numpy(dtype="float64"),
        "largest": summary["max"].to_numpy(dtype="float64"),
    }
    numbers = {name: np.exp(column) if logs else column for name, column in columns.items()}
    counted = {
        "seeds": seeds.astype("int64"),
        "nonfinite": counts["bad"].to_numpy(dtype="int64"),
        "zeros": counts["zero"].to_numpy(dtype="int64"),
        "estimated": np.isfinite(own),
    }
    return pd.DataFrame({**numbers, **counted}, index=summary.index)


def half_width(std: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return half the width of Student's t interval of a mean, NaN where there are fewer than two seeds."""
    several = seeds > 1
    quantile = stats.t.ppf((1 + LEVEL) / 2, np.where(several, seeds - 1, 1))
    return np.where(several, quantile * std / np.sqrt(np.maximum(seeds, 1)), np.nan)
