"""Slopes of the last layer's gradient against depth, one for each kind of model, and how they read."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from normlab.digits import minus, number
from normlab.errors import DataError
from normlab.fits import ExponentFit, exponent
from normlab.plots._curves import points
from normlab.plots._panels import label_rows, panel_columns
from normlab.plots._rows import Rows
from normlab.plots._words import LISTED, change, sentence

LAST: Final = Rows("grad_norm", role="down", sublayers=("mlp",), last=True)


@dataclass(frozen=True)
class Slope:
    """The log-log slope of one kind of model.

    Attributes:
        panel: the kind of model.
        fit: the slope, or None where there are too few depths.
    """

    panel: str
    fit: ExponentFit | None

    @property
    def label(self) -> str:
        """The kind of model, its slope and the interval."""
        if self.fit is None:
            return self.panel or "measured"
        start = f"{self.panel}: slope" if self.panel else "slope"
        return f"{start} {signed(self.fit.exponent)} {interval(self.fit)}".strip()


def signed(value: float) -> str:
    """Return a slope with two decimals and its sign."""
    return minus(f"{value:+.2f}")


def interval(fit: ExponentFit) -> str:
    """Return the interval in brackets, or nothing where one seed bounds nothing."""
    if not np.isfinite(fit.low):
        return "(1 seed)"
    return f"[{signed(fit.low)}, {signed(fit.high)}]"


def fitted_slopes(table: pd.DataFrame) -> list[Slope]:
    """Fit ln(gradient norm of the last layer) on ln L in each seed, for each kind of model."""
    chosen = LAST.select(table)
    rows = chosen[chosen["source"] == "measured"]
    labels = label_rows(rows, panel_columns(rows))
    return [Slope(str(panel), _fit(rows[labels == panel])) for panel in labels.unique()]


def _fit(rows: pd.DataFrame) -> ExponentFit | None:
    seeded = rows if "model_seed" in rows.columns and rows["model_seed"].notna().all() else rows.assign(model_seed=0)
    try:
        return exponent(seeded, "grad_norm", x="depth")
    except DataError:
        return None


def slopes_finding(table: pd.DataFrame) -> str:
    """Say how the last layer's gradient changes with depth, with slopes and intervals."""
    placed = points(table, LAST, "geometric")
    measured = placed[placed["source"] == "measured"].sort_values("depth", kind="stable")
    slopes = {slope.panel: slope.fit for slope in fitted_slopes(table)}
    if len(slopes) > LISTED:
        return _many_slopes({panel: fit for panel, fit in slopes.items() if fit is not None}, len(slopes))
    clauses: dict[str, list[str]] = {}
    for panel, fit in slopes.items():
        rows = measured[measured["panel"] == panel]
        clauses.setdefault(_reach(rows), []).append(f"{_said(rows)}{f' in {panel}' if panel else ''}{_slope(fit)}")
    what = "the last layer's gradient norm"
    return sentence("; ".join(f"{reach}, {what} {'; '.join(said)}" for reach, said in clauses.items()))


def _reach(rows: pd.DataFrame) -> str:
    first, last = rows["depth"].iloc[0], rows["depth"].iloc[-1]
    return f"from depth {first} to depth {last}" if first != last else f"at depth {last}, the only one"


def _said(rows: pd.DataFrame) -> str:
    centres = rows["centre"].tolist()
    return (
        change(centres, rows["depth"].astype(int).tolist(), "depth") if len(centres) > 1 else f"is {number(centres[0])}"
    )


def _slope(fit: ExponentFit | None) -> str:
    if fit is None:
        return ""
    seeds = f" over {fit.n_seeds} seeds" if fit.n_seeds > 1 else ""
    return f", log-log slope {signed(fit.exponent)} {interval(fit)}{seeds}"


def _many_slopes(fits: dict[str, ExponentFit], kinds: int) -> str:
    if not fits:
        return f"Of {kinds} kinds of models none has enough depths for a slope of the last layer's gradient norm."
    order = sorted(fits, key=lambda panel: fits[panel].exponent)
    lowest, highest = order[0], order[-1]
    return (
        f"Over {kinds} kinds of models, the log-log slope of the last layer's gradient norm on depth is between "
        f"{signed(fits[lowest].exponent)} {interval(fits[lowest])} ({lowest}) and "
        f"{signed(fits[highest].exponent)} {interval(fits[highest])} ({highest})."
    )
