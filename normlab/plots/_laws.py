"""The growth law that is drawn with the stream, and how it reads."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from normlab.digits import number
from normlab.errors import DataError
from normlab.fits import GrowthLaw, growth_law
from normlab.plots._panels import label_rows, panel_columns
from normlab.plots._rows import Rows, own_depth
from normlab.plots._style import FIT, SOFT

ROWS: Final = Rows("mean_square", site="stream", sublayers=("mlp",))
#: A law that moves less than this over the whole depth is called flat.
_FLAT: Final = 0.05
#: A layer whose mean square is farther from the law than this lies outside it.
_OUTSIDE: Final = 1.5
#: A law of more letters than this is written in two lines.
_LONG: Final = 62
#: How far above the stream its guide lies.
_GUIDE: Final = 1.3
_THIN: Final[dict[str, Any]] = {"color": SOFT, "linewidth": 0.8, "zorder": 1.5}


@dataclass(frozen=True)
class FittedLaw:
    """A law of the mean square, for one kind of model.

    Attributes:
        panel: the kind of model.
        depth: the layers of the model to which it was fitted, the deepest.
        fit: the law.
        farthest: the layer at which the stream is farthest from the law, and its mean square over the law's there.
    """

    panel: str
    depth: int
    fit: GrowthLaw
    farthest: tuple[int, float]

    @property
    def holds(self) -> bool:
        """Whether there is a law to draw: the seeds agree on one that fits, or it is flat and so the same in all."""
        return not self.fit.poor and (self.fit.decided or self._flat)

    @property
    def _flat(self) -> bool:
        ends = self.fit.predict([1.0, float(self.depth)])
        return bool(abs(ends[1] / ends[0] - 1) < _FLAT)

    @property
    def label(self) -> str:
        """The law with its numbers, and how many seeds chose it; or why there is none."""
        if not self.holds:
            return self._none
        if self._flat:
            return f"q ≈ {number(float(self.fit.predict([1.0, float(self.depth)]).mean()))}, flat"
        a, b = number(self.fit.a), number(abs(self.fit.b))
        right = self.fit.formula.split(" = ")[1].replace("a", a, 1).replace("+ b", f"{_sign(self.fit.b)} {b}")
        left = "ln q" if self.fit.formula.startswith("ln y") else "q"
        return f"{left} = {right} ({self._votes})"

    @property
    def outside(self) -> str:
        """The layer that lies farthest outside the law, where one clearly does; otherwise nothing."""
        layer, ratio = self.farthest
        if 1 / _OUTSIDE < ratio < _OUTSIDE:
            return ""
        return f", most at layer {layer}, where q is {number(ratio)} times the law's"

    @property
    def _votes(self) -> str:
        return f"{self.fit.votes[self.fit.law]}/{self.fit.n_seeds} seeds"

    @property
    def _none(self) -> str:
        votes, seeds = self.fit.votes[self.fit.law], self.fit.n_seeds
        form = self.fit.formula.replace("y", "q", 1)
        if self.fit.poor:
            return (
                f"no law of two parameters fits (the nearest, {form}, is typically {1 + self.fit.error:.2f}-fold off)"
            )
        if votes < seeds:
            return f"no single law fits ({votes} of {seeds} seeds prefer {form})"
        return f"too few seeds for a law ({'the only seed prefers' if seeds == 1 else f'all {seeds} prefer'} {form})"


def _sign(value: float) -> str:
    return "−" if value < 0 else "+"


def fitted_laws(table: pd.DataFrame) -> list[FittedLaw]:
    """Fit a law to the mean square of the stream of each kind's deepest model; a kind with too few layers has none."""
    chosen = ROWS.select(table)
    rows = chosen[chosen["source"] == "measured"]
    labels = label_rows(rows, panel_columns(rows))
    found = []
    for panel in labels.unique():
        own = rows[labels == panel]
        depth = int(own["depth"].max())
        deepest = own[own["depth"] == depth]
        fit = _fit(deepest)
        if fit is not None:
            found.append(FittedLaw(str(panel), int(own_depth(deepest).max()), fit, _farthest(deepest, fit)))
    return found


def _farthest(rows: pd.DataFrame, fit: GrowthLaw) -> tuple[int, float]:
    known = rows[(rows["value"] > 0) & np.isfinite(rows["value"]) & (rows["layer"] > 0)]
    layers = known["layer"].astype(float)
    mean = np.exp(np.log(known["value"]).groupby(layers).mean())
    law = pd.Series(fit.predict(mean.index.to_numpy()), index=mean.index)
    ratio = (mean / law).where(law > 0).dropna()
    if ratio.empty:
        return 0, 1.0
    place = int(np.log(ratio).abs().argmax())
    return int(ratio.index[place]), float(ratio.iloc[place])


def _fit(rows: pd.DataFrame) -> GrowthLaw | None:
    seeded = rows if "model_seed" in rows.columns and rows["model_seed"].notna().all() else rows.assign(model_seed=0)
    try:
        fit = growth_law(seeded, "mean_square")
    except DataError:
        return None
    return fit if np.isfinite(fit.predict([1.0, float(own_depth(rows).max())])).all() else None


def draw_law(ax: Axes, law: FittedLaw, x: str, label: str) -> None:
    """Draw the root of a law of the mean square over the layers 1 to L."""
    layers = np.geomspace(1.0, float(law.depth), 120)
    squares = law.fit.predict(layers)
    rms = np.sqrt(np.where(squares > 0, squares, np.nan))
    place = layers / law.depth if x == "fraction" else layers
    ax.plot(place, rms, color=FIT, linestyle=(0, (8, 3)), linewidth=1.1, zorder=5, label=label)


def draw_guide(ax: Axes, placed: pd.DataFrame) -> None:
    """Draw a thin line ∝ √ℓ just above the deepest model of each kind whose rms doubles at least.

    On a linear axis of layers it has no slope to compare with, and is left out.
    """
    if ax.get_xscale() == "linear":
        return
    measured = placed[placed["source"] == "measured"]
    for panel in measured["panel"].unique():
        own = measured[(measured["panel"] == panel) & (measured["depth"] == measured["depth"].max())]
        line = own[(own["layer"] > 0) & np.isfinite(own["centre"])].sort_values("layer", kind="stable")
        layers, rms = line["layer"].to_numpy(dtype=float), line["centre"].to_numpy(dtype=float)
        if len(rms) < 4 or rms[-1] < 2 * rms[0]:
            continue
        some = slice(len(rms) // 8, max(4, 5 * len(rms) // 8))
        scale = _GUIDE * float((rms / np.sqrt(layers))[some].max())
        ax.plot(line["x"].to_numpy(dtype=float)[some], scale * np.sqrt(layers[some]), **_THIN, label="slope ½ (√ℓ)")


def write_laws(ax: Axes, laws: list[FittedLaw], *, several: bool = False) -> None:
    """Write the laws over the axes, where a legend has no room for them; ``several`` kinds are named."""
    if laws:
        lines = (f"{law.panel}: {law.label}" if several else law.label for law in laws)
        # A long one would run into the legend beside the axes.
        text = "\n".join(line.replace(" (", "\n(", 1) if len(line) > _LONG else line for line in lines)
        ax.text(0.0, 1.012, text, transform=ax.transAxes, ha="left", va="bottom", fontsize=7, color=FIT)
