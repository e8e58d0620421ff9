"""Where measurement leaves theory by more than seeds spread (equation D1 of ``docs/theory.md``)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from scipy import stats

from normlab.schema import CELL_COLUMNS

#: Quantities whose difference counts; of all others it is the ratio.
DIFFERENCES: Final = ("token_overlap",)
#: What theory says twice: of a mean square and its root, or of one role and all of them, one is enough.
_TWICE: Final = ("mean_square", "variance")
_CURVE: Final = ["stack", "sublayer", "site", "quantity", "role"]
_SEEDS: Final = ("model_seed", "data_seed")
#: What tells models of one kind apart.
_DEPTH: Final = ("depth", "encoder_depth", "spec")
#: What is shown of a departure besides what tells it from the others.
_SHOWN: Final = ("site", "quantity", "first", "last", "ratio", "seeds")
#: Departures that are shown, the largest.
_MOST: Final = 12


@dataclass(frozen=True, eq=False)
class Departures:
    """What a comparison of a sweep with theory found.

    Attributes:
        curves: number of curves that both have: a quantity at a site, or of a role, in a model.
        rows: one row a departure: the model's columns, the curve's, ``first`` and ``last`` layer, ``change`` (D),
            ``spread`` (s), ``ratio`` (exp D, or D itself for a difference) and ``seeds``; the largest D/s comes first.
        nearest: the row of the largest D/s that could be chance, likewise.
    """

    curves: int
    rows: pd.DataFrame
    nearest: pd.DataFrame

    def __str__(self) -> str:
        """Return a sentence, and the departures as a table if there are any."""
        if not len(self.rows):
            return f"No curve leaves theory: {self.curves} compared, layers in octaves."
        shown = [name for name in self.rows if name in _SHOWN or self.rows[name].nunique(dropna=False) > 1]
        heading = (
            f"Of {self.curves} curves, {len(self.rows)} stretches of layers leave theory by more than the seeds do:"
        )
        more = f"\n... and {len(self.rows) - _MOST} more in .rows" if len(self.rows) > _MOST else ""
        return f"{heading}\n{self.rows[shown].head(_MOST).to_string(index=False)}{more}"


def departures(measured: pd.DataFrame, theory: pd.DataFrame, *, level: float = 0.05, least: float = 0.01) -> Departures:
    """Compare every curve that both tables have, layers in octaves (0, 1, 2, 3–4, 5–8, ...).

    Let D be the mean over seeds of ln(measured/theory), averaged over an octave's layers; of overlaps, of the
    difference. Theory is that of the same batch, or the mean over the batches that it has. The spread s is the standard
    deviation over seeds of what was measured: that of the octave itself, or of all octaves and depths of the curve
    together if that is larger. An octave is listed where |D| > s and |D| > ``least``, and where Student's t of D, with
    the standard deviation of the differences, is too large to be chance: false discoveries among all that is compared
    are kept at ``level`` (Benjamini and Hochberg). Neighbouring octaves that leave theory in one direction are one row.

    Args:
        measured: the table of a sweep.
        theory: predictions for it (:func:`~normlab.theory.beside`).
        level: the share of false ones among those listed that is accepted.
        least: the smallest |D| that counts.
    """
    kind = [name for name in CELL_COLUMNS if name in measured.columns and name in theory.columns]
    kind = [name for name in kind if name not in _SEEDS]
    octaves = _octaves(_logs(measured, "measured"), _logs(theory, "theory"), kind)
    curves = len(octaves[[*kind, *_CURVE]].drop_duplicates())
    tested = _tested(octaves, kind, level)
    found = tested["found"] & (tested["change"].abs() > np.maximum(tested["spread"], least))
    others = tested[~found & (tested["change"].abs() > least)][::-1]
    spreads = (others["change"].abs() / others["spread"]).sort_values(ascending=False, kind="stable")
    return Departures(curves, _joined(tested[found], kind), _joined(others.loc[spreads.index[:1]], kind))


def _usable(table: pd.DataFrame) -> pd.DataFrame:
    kept = (table["status"] == "ok") & ~table["quantity"].isin(_TWICE) & (table["role"] != "all")
    # Theory is that of models that have not been trained, on tensors that the plan names.
    kept &= table["step"].fillna(0) == 0
    return table[kept & (table["quantity"] != "lyapunov") & (table["quantity"] != "apjn")]


def _logs(table: pd.DataFrame, source: str) -> pd.DataFrame:
    rows = _usable(table[table["source"] == source])
    value = rows["value"].to_numpy(dtype="float64")
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(rows["quantity"].isin(DIFFERENCES), value, np.log(value))
    return rows.assign(log=logs, layer=rows["layer"].astype("Float64").fillna(-1).astype("int64"))[np.isfinite(logs)]


def _octaves(measured: pd.DataFrame, theory: pd.DataFrame, kind: list[str]) -> pd.DataFrame:
    """One row a curve and octave: change, own spread, its standard error and the number of seeds."""
    by = [*kind, *_CURVE, "octave"]
    rows = _beside(measured, theory, [*kind, *_CURVE, "layer"])
    rows["change"] = rows["log"] - rows["expected"]
    rows["octave"] = np.ceil(np.log2(np.maximum(rows["layer"], 0.5))).astype("int64")
    own = [name for name in _SEEDS if name in rows.columns]
    values = ["log", "change", "paired", "own_batch"]
    means = rows.groupby([*by, *own], observed=True, dropna=False)[values].mean().reset_index()
    groups = means.groupby(by, observed=True, dropna=False)
    summary = groups.agg(
        change=("change", "mean"),
        spread=("log", "std"),
        noise=("change", "std"),
        seeds=("log", "count"),
        batches=("paired", "sum"),
    )
    between = groups["own_batch"].std().fillna(0.0) if own else 0.0
    layers = rows.groupby(by, observed=True, dropna=False)["layer"].agg(first="min", last="max")
    return summary.assign(between=between).join(layers).reset_index()


def _beside(measured: pd.DataFrame, theory: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Give each measured row what theory expects of its batch, or of the batches that it has on average."""
    one, other = _grouped(measured, key), _grouped(theory, key)
    expected = other.groupby(key, dropna=False)["log"].mean().reset_index(name="expected")
    rows = one.merge(expected, on=key, how="inner").assign(paired=0.0, own_batch=np.nan)
    if "data_seed" not in other.columns or "data_seed" not in one.columns or other["data_seed"].isna().all():
        return rows
    batch = other[[*key, "data_seed", "log"]].rename(columns={"log": "of_batch"})
    rows = rows.merge(batch, on=[*key, "data_seed"], how="left")
    known = rows["of_batch"].notna()
    return rows.assign(
        expected=rows["of_batch"].where(known, rows["expected"]), paired=known.astype(float), own_batch=rows["of_batch"]
    )


def _grouped(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Text columns as text: categories of two tables differ."""
    return rows.astype({name: object for name in key if isinstance(rows[name].dtype, pd.CategoricalDtype)})


def _tested(octaves: pd.DataFrame, kind: list[str], level: float) -> pd.DataFrame:
    family = [octaves[name] for name in (*(name for name in kind if name not in _DEPTH), *_CURVE)]
    spread, noise = (_at_least_pooled(octaves[name], family) for name in ("spread", "noise"))
    seeds = octaves["seeds"]
    # Batches that theory was not asked for leave it the uncertainty of an average over the others.
    fewer = (1 / octaves["batches"].where(octaves["batches"] > 0) - 1 / seeds).clip(lower=0).fillna(0.0)
    error = (noise**2 / seeds + octaves["between"] ** 2 * fewer) ** 0.5
    t = (octaves["change"].abs() / error.where(error > 0)).where(error > 0, np.inf)
    p = np.where(seeds > 1, 2 * stats.t.sf(t, np.maximum(seeds - 1, 1)), np.nan)
    return octaves.assign(spread=spread, found=_discoveries(p, level))


def _at_least_pooled(own: pd.Series, family: list[pd.Series]) -> pd.Series:
    """Return each standard deviation, or that of all octaves and depths of the curve if it is larger."""
    pooled = np.sqrt((own**2).groupby(family, dropna=False).transform("mean"))
    larger: pd.Series = np.fmax(own, pooled)
    return larger


def _discoveries(p: np.ndarray, level: float) -> np.ndarray:
    """Benjamini and Hochberg's choice among p-values; NaN is never chosen."""
    known = np.sort(p[np.isfinite(p)])
    below = known <= level * np.arange(1, len(known) + 1) / max(len(known), 1)
    return np.asarray(p <= (known[below].max() if below.any() else -1.0))


def _joined(listed: pd.DataFrame, kind: list[str]) -> pd.DataFrame:
    """Join neighbouring octaves of a curve that leave theory in one direction."""
    rows = listed.sort_values([*kind, *_CURVE, "octave"], kind="stable").reset_index(drop=True)
    text = rows[[*kind, *_CURVE]].astype(object).where(rows[[*kind, *_CURVE]].notna(), "").astype(str)
    same = (text == text.shift()).all(axis=1)
    follows = (rows["octave"] == rows["octave"].shift() + 1) & (rows["change"] * rows["change"].shift() > 0)
    runs = same & follows
    rows = rows.assign(run=(~runs).cumsum())
    joined = rows.groupby("run").agg(
        {**{name: "first" for name in (*kind, *_CURVE)}, "first": "min", "last": "max", "change": "mean"}
        | {"spread": "mean", "seeds": "min"}
    )
    ratio = np.where(joined["quantity"].isin(DIFFERENCES), joined["change"], np.exp(joined["change"]))
    order = (joined["change"].abs() / joined["spread"]).sort_values(ascending=False, kind="stable").index
    return joined.assign(ratio=ratio).loc[order].reset_index(drop=True)
