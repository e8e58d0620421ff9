"""Verdicts as a table for a terminal."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from normlab.claims import RegimeVerdict, Verdict

_COLOURS = {"supported": "green", "refuted": "red", "conditional": "yellow"}


def verdict_table(verdicts: Iterable["Verdict"]) -> "Table":
    """Return one row a claim, and below it one for each regime that was tested."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table("claim", "verdict", "effect and interval", "seeds", box=box.SIMPLE_HEAD, pad_edge=False)
    for verdict in verdicts:
        table.add_row(f"[bold]{verdict.id}[/]", _word(verdict.verdict))
        for regime in verdict.regimes:
            if regime.verdict != "not-tested":
                table.add_row(
                    f"  {escape(regime.name)}", _word(regime.verdict), escape(effect(regime)), f"{regime.n_seeds}"
                )
    return table


def effect(regime: "RegimeVerdict") -> str:
    """Return the effect with its unit and its interval: ``slope -0.49 [-0.52, -0.46]``."""
    if not math.isfinite(regime.effect):
        return regime.unit
    return f"{regime.unit} {regime.effect:.3g} [{regime.low:.3g}, {regime.high:.3g}]"


def _word(verdict: str) -> str:
    colour = _COLOURS.get(verdict)
    return f"[{colour}]{verdict}[/]" if colour else verdict
