"""How the page's words are set: subscripts, titles, and the line that gives a figure's means again."""

import re
from typing import Final

import pandas as pd
from markupsafe import Markup, escape

from normlab.claims import RegimeVerdict, Verdict
from normlab.digits import minus
from normlab.plots import Plot
from normlab.reports._source import Source

#: A symbol of one letter with a subscript, such as q_L or G_{L/4}; not the name of a column.
_SUBSCRIPT: Final = re.compile(r"(?<![A-Za-z0-9_])([A-Za-zα-ωΑ-Ω])_(?:\{([^{}]+)\}|([A-Za-z0-9ℓ]+))(?!\w)")


def subscripted(text: str) -> Markup:
    """Return ``text`` as HTML, with ``q_L`` set as q and a subscript L, and signs as minus signs."""
    return Markup(_SUBSCRIPT.sub(r"\1<sub>\2\3</sub>", str(escape(minus(text)))))  # noqa: S704 - escaped above


def title(source: Source) -> str:
    """Return what the page is about: what was varied, and which models."""
    kinds = source.varying.get("placement") or [source.constant.get("placement", "")]
    depths = source.varying.get("depth") or [source.constant.get("depth", "")]
    if not kinds[0]:
        return "Recorded model"
    names = ", ".join(kinds[:-1]) + " and " + kinds[-1] if len(kinds) > 1 else kinds[0]
    if len(kinds) > 5:
        names = f"{len(kinds)} placements"
    if len(depths) > 1:
        return f"Depth sweep: {names}, depths {depths[0]} to {depths[-1]}"
    what = "Placements" if 1 < len(kinds) <= 5 else "Sweep" if source.varying else "One model"
    return f"{what}: {names}, depth {depths[0]}"


def means_line(plot: Plot, points: pd.DataFrame, table: pd.DataFrame) -> str:
    """Return the code that gives a figure's means from a table: NumPy's exp of the mean of the logarithms."""
    before = points.columns[: list(points.columns).index("centre")]
    by = ", ".join(repr(name) for name in before if name in table.columns)
    groups = f".groupby([{by}], observed=True, dropna=False)"
    rows = f'rows = table.query("{plot.needs.query_of(table)}")\n'
    if plot.average == "arithmetic":
        return f'{rows}means = rows{groups}["value"].mean()'
    logs = 'rows.assign(log=np.log(rows["value"]))'
    return f'{rows}means = np.exp(\n    {logs}\n    {groups}["log"]\n    .mean()\n)'


def untested(verdict: Verdict, regime: RegimeVerdict) -> str:
    """Say why a regime was not tested: the gap that the table leaves."""
    own = [gap for gap in verdict.coverage_gaps if gap.startswith((f"{regime.name}:", f"{regime.name},"))]
    gaps = [gap[len(regime.name) + 1 :].strip() for gap in own]
    text = "; ".join(gaps) or verdict.reason.rstrip(".")
    return f"Not tested: {text}."
