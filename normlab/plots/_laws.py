"""The growth law that is drawn with the stream, and how it reads."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from normlab.errors import DataError
from normlab.fits import GrowthLaw, growth_law
from normlab.plots._panels import label_rows, panel_columns
from normlab.plots._rows import Rows
from normlab.plots._style import FIT
from normlab.plots._words import number

ROWS: Final = Rows("mean_square", site="stream", sublayers=("mlp",))
#: A law that moves less than this over the whole depth is called flat.
_FLAT: Final = 0.05


@dataclass(frozen=True)
class FittedLaw:
    """A law of the mean square, for one kind of model.

    Attributes:
        panel: the kind of model.
        depth: the depth of the model to whose layers it was fitted, the deepest.
        fit: the law.
    """

    panel: str
    depth: int
    fit: GrowthLaw

    @property
    def label(self) -> str:
        """The law with its numbers, and how many seeds chose it."""
        ends = self.fit.predict([1.0, float(self.depth)])
        if abs(ends[1] / ends[0] - 1) < _FLAT:
            return f"q ≈ {number(float(ends.mean()))}, flat"
        a, b = number(self.fit.a), number(abs(self.fit.b))
        right = self.fit.formula.split(" = ")[1].replace("a", a, 1).replace("+ b", f"{_sign(self.fit.b)} {b}")
        left = "ln q" if self.fit.formula.startswith("ln y") else "q"
        return f"{left} = {right} ({self._votes})"

    @property
    def _votes(self) -> str:
        if self.fit.n_seeds == 1:
            return "1 seed"
        votes = f"{self.fit.votes[self.fit.law]}/{self.fit.n_seeds} seeds"
        return votes if self.fit.decided else f"{votes}, not decided"


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
        fit = _fit(own[own["depth"] == depth])
        found += [FittedLaw(str(panel), depth, fit)] if fit is not None else []
    return found


def _fit(rows: pd.DataFrame) -> GrowthLaw | None:
    seeded = rows if "model_seed" in rows.columns and rows["model_seed"].notna().all() else rows.assign(model_seed=0)
    try:
        fit = growth_law(seeded, "mean_square")
    except DataError:
        return None
    return fit if np.isfinite(fit.predict([1.0, float(rows["depth"].max())])).all() else None


def draw_law(ax: Axes, law: FittedLaw, x: str, label: str) -> None:
    """Draw the root of a law of the mean square over the layers 1 to L."""
    layers = np.geomspace(1.0, float(law.depth), 120)
    squares = law.fit.predict(layers)
    rms = np.sqrt(np.where(squares > 0, squares, np.nan))
    place = layers / law.depth if x == "fraction" else layers
    ax.plot(place, rms, color=FIT, linestyle=(0, (8, 3)), linewidth=1.1, zorder=5, label=label)


def write_laws(ax: Axes, laws: list[FittedLaw]) -> None:
    """Write the laws over the axes, where a shared legend has no room for them."""
    if laws:
        text = "\n".join(law.label for law in laws)
        ax.text(0.0, 1.012, text, transform=ax.transAxes, ha="left", va="bottom", fontsize=7, color=FIT)
