"""What a table shows of one regime."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from normlab.claims.claim import Claim, Gap, Regime, Sample
from normlab.claims.finite_size import Size, finite_size
from normlab.claims.groups import Group, groups
from normlab.claims.rules import Decision
from normlab.claims.verdict import RegimeVerdict
from normlab.fits import FEWEST_SEEDS, choose
from normlab.schema import CELL_COLUMNS


@dataclass(frozen=True)
class Finding:
    """A regime's verdict, with what else the claim's verdict needs.

    Attributes:
        regime: which regime.
        verdict: its verdict, for one group of models.
        decision: what the rule made of the statistic; ``None`` where nothing was tested.
        gaps: what the table lacks, or what was left out.
        detail: a further finding that decides nothing.
    """

    regime: Regime
    verdict: RegimeVerdict
    decision: Decision | None
    gaps: tuple[str, ...] = ()
    detail: str = ""


def regime_findings(claim: Claim, regime: Regime, table: pd.DataFrame) -> Iterator[Finding]:
    """Yield the finding of each group of models that belongs to a regime; one that says why if there is none."""
    if regime.not_tested:
        yield _not_tested(regime, regime.name, regime.not_tested)
        return
    asked = set(re.findall(r"\w+", f"{regime.query} {regime.statistic.query}"))
    unknown = [name for name in CELL_COLUMNS if name in asked and name not in table.columns]
    if unknown:
        yield _not_tested(regime, regime.name, f"the table has no column {unknown[0]!r}")
        return
    models = choose(table, regime.query) if len(table) else table
    rows = choose(models, regime.statistic.query) if len(models) else models
    if rows.empty:
        why = f"the table has no {regime.models}" if models.empty else "the table lacks the rows of the statistic"
        yield _not_tested(regime, regime.name, why)
        return
    found = tuple(groups(rows, regime.compared))
    for group in found:
        yield _group(claim, regime, _name(regime, group, found), group)


def _name(regime: Regime, group: Group, among: Sequence[Group]) -> str:
    """The regime's name, with what tells its groups apart."""
    differing = [
        f"{name}={value}"
        for name, value in group.model.items()
        if any(other.model.get(name) != value for other in among)
    ]
    if len({other.data for other in among}) > 1:
        differing.append(group.data)
    return f"{regime.name} ({', '.join(differing)})" if differing else regime.name


def _group(claim: Claim, regime: Regime, name: str, group: Group) -> Finding:
    measured: list[tuple[int, Sample, Decision]] = []
    gaps: list[str] = []
    for width, rows in group.by_width:
        try:
            sample = regime.statistic.sample(rows)
        except Gap as gap:
            gaps.append(f"{name}, width {width}: {gap}")
            continue
        gaps.extend(f"{name}, width {width}: {note}" for note in sample.notes)
        measured.append((width, sample, regime.rule.decide(sample.values, claim.alpha)))
    if not measured:
        return _not_tested(regime, name, "; ".join(gaps), group)
    # The widest models that have enough seeds decide: they are nearest to the limit that laws speak of.
    enough = [entry for entry in measured if entry[2].interval.n >= FEWEST_SEEDS] or measured
    width, sample, decision = enough[0]
    sizes = tuple(_size(*entry) for entry in enough)
    verdict = replace(
        _blank(regime, name, group),
        verdict=decision.outcome,
        effect=decision.interval.mean,
        low=decision.interval.low,
        high=decision.interval.high,
        level=decision.interval.level,
        n_seeds=decision.interval.n,
        depths=sample.depths,
        widths=(width,),
        finite_size=finite_size(sizes, regime.rule),
    )
    return Finding(regime, verdict, decision, tuple(gaps), sample.detail)


def _size(width: int, sample: Sample, decision: Decision) -> Size:
    interval = decision.interval
    return Size(
        width=width,
        deepest=max(sample.depths),
        verdict=decision.outcome,
        effect=interval.mean,
        low=interval.low,
        high=interval.high,
        sd=interval.sd,
        n_seeds=interval.n,
    )


def _not_tested(regime: Regime, name: str, why: str, group: Group | None = None) -> Finding:
    gap = why if why.startswith(name) else f"{name}: {why}"
    return Finding(regime, _blank(regime, name, group), None, (gap,))


def _blank(regime: Regime, name: str, group: Group | None) -> RegimeVerdict:
    nothing = float("nan")
    return RegimeVerdict(
        name=name,
        spec=group.model if group else {},
        verdict="not-tested",
        effect=nothing,
        unit=regime.statistic.unit,
        low=nothing,
        high=nothing,
        level=nothing,
        estimator=regime.statistic.estimator,
        margin=regime.rule.margin,
        rule=regime.rule.text,
        n_seeds=0,
        depths=(),
        widths=(),
        data=group.data if group else "",
    )
