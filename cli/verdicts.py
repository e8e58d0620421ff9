"""Verdicts as a table for a terminal."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from normlab.digits import minus

if TYPE_CHECKING:
    from rich.table import Table

    from normlab.claims import RegimeVerdict, Verdict

_COLOURS = {"supported": "green", "refuted": "red", "conditional": "yellow"}


def verdict_table(verdicts: Iterable["Verdict"], *, named: bool = True) -> "Table":
    """Return one row a claim, and below it one for each regime that was tested.

    Args:
        verdicts: what was decided.
        named: whether a line under each number says what it is.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table("claim", "verdict", "effect and interval", "seeds", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].overflow = "fold"
    for verdict in verdicts:
        table.add_row(f"[bold]{verdict.id}[/]", _word(verdict.verdict))
        for regime in verdict.regimes:
            if regime.verdict != "not-tested":
                what = f"\n[dim]{escape(regime.estimator)}[/]" if named else ""
                said = f"{escape(effect(regime))}{what}"
                table.add_row(f"  {escape(regime.name)}", _word(regime.verdict), said, f"{regime.n_seeds}")
    return table


def not_judged(verdicts: Sequence["Verdict"], *, alone: bool) -> str:
    """Count the claims that a sweep could not test, by what would; where it tested none, name the nearest one's gap."""
    from normlab.claims import CLAIMS

    claims = [CLAIMS[verdict.id] for verdict in verdicts]
    beyond = sum(bool(claim.not_tested or claim.needs) for claim in claims)
    swept = sum(bool(claim.design.grids) for claim in claims)
    counts = ((swept, "other models, depths or widths"), (len(claims) - beyond - swept, "computations of their own"),
              (beyond, "training, a GPU or weights"))  # fmt: skip
    said = ", ".join(f"{count} need {what}" for count, what in counts if count)
    if not alone:
        return f"claims not tested: {said}; normlab claims run settles those that it can"
    return f"no claim can be judged ({said}); the nearest is {_nearest(verdicts)}"


def _nearest(verdicts: Sequence["Verdict"]) -> str:
    """The claim whose models the sweep has, if there is one, and what it lacks."""
    gaps = [
        (verdict.id, gap)
        for verdict in verdicts
        for gap in verdict.coverage_gaps
        if _of_sweeps(verdict.id) and not gap.endswith(": weights")
    ]
    id, gap = min(gaps, key=lambda found: "the table has no " in found[1])
    return f"{id}: {gap}"


def _of_sweeps(id: str) -> bool:
    from normlab.claims import CLAIMS

    return bool(CLAIMS[id].design.grids)


def effect(regime: "RegimeVerdict") -> str:
    """Return the effect with its unit and its interval: ``slope −0.49 [−0.52, −0.46]``."""
    if not math.isfinite(regime.effect):
        return regime.unit
    return f"{regime.unit} " + minus(f"{regime.effect:.3g} [{regime.low:.3g}, {regime.high:.3g}]")


def _word(verdict: str) -> str:
    colour = _COLOURS.get(verdict)
    return f"[{colour}]{verdict}[/]" if colour else verdict
