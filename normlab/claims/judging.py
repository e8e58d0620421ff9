"""Judging: from a claim and a table to a verdict."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from normlab.claims.claim import CLAIMS, Claim
from normlab.claims.combining import combine
from normlab.claims.evidence import QUANTITY
from normlab.claims.findings import Finding, regime_findings
from normlab.claims.groups import at_start
from normlab.claims.provenance import rows_used, versions
from normlab.claims.rules import Outcome
from normlab.claims.verdict import Verdict
from normlab.claims.wording import reason
from normlab.errors import NormlabError
from normlab.fits import choose, holm
from normlab.table import normalise, ordered


@dataclass(frozen=True)
class _Judgement:
    verdict: Verdict
    family: str
    p: float
    failed: bool = False


@dataclass(frozen=True, eq=False)
class _Rows:
    """A table's rows at initialisation: those of sweeps, and those that claims computed."""

    swept: pd.DataFrame
    computed: pd.DataFrame

    def of(self, claim: Claim) -> pd.DataFrame:
        """Return the rows that a claim can read: whole tables are slow to query a hundred times."""
        kinds = {regime.statistic.computed for regime in claim.regimes}
        if len(kinds) == 1:
            return self.computed if kinds.pop() else self.swept
        return self.both

    @cached_property
    def both(self) -> pd.DataFrame:
        """All of them, not reordered: rows keep their labels."""
        return pd.concat([self.swept, self.computed])

    @cached_property
    def models(self) -> dict[str, tuple[str, ...]]:
        """What the columns say of each spec of the sweeps."""
        from normlab.claims.running import model_of

        once = self.swept.drop_duplicates("spec")
        rows = (dict(zip(once.columns, values, strict=True)) for values in once.itertuples(index=False, name=None))
        return {str(row["spec"]): model_of(row) for row in rows}

    def own(self, claim: Claim) -> tuple[str, ...]:
        """Return the ids of the specs of a claim's own design that the table has."""
        from normlab.claims.running import models_of

        wanted = models_of(claim) if claim.design.grids else frozenset()
        return tuple(sorted(spec for spec, model in self.models.items() if model in wanted))


def judge(claim_id: str, table: pd.DataFrame) -> Verdict:
    """Judge a claim on a table, of a sweep of your own or of the claim's.

    Only rows measured at initialisation count. Models that differ in more than depth, width and seed
    are never mixed: where a regime has several kinds, each is judged and printed on its own. The
    verdict speaks for the regimes that the table has, and names those that it lacks.

    Args:
        claim_id: such as ``"preln-grad-shrinks-with-depth"``; :func:`normlab.claims.catalog` lists them.
        table: from :func:`normlab.sweep`, :func:`normlab.load` or :func:`normlab.claims.run`.

    Raises:
        UnknownNameError: no claim has that id.
        DataError: the table lacks the columns of a sweep, or mixes measurements under one seed.
    """
    claim = CLAIMS[claim_id]
    return _judge(claim, _rows(table).of(claim)).verdict


def judge_all(
    table: pd.DataFrame, ids: Iterable[str] | None = None, *, untested: bool = False, own: bool = False
) -> tuple[Verdict, ...]:
    """Judge every claim that the table can speak to, with Holm's correction within each family.

    Each verdict still stands at its own α; ``p_holm`` says which would stand if all of a family's had
    to be right together. A claim that the table stops from being judged, for instance because it mixes
    measurements under one seed, is ``not-tested`` with the reason; the others are judged.

    Args:
        table: from :func:`normlab.sweep`, :func:`normlab.load` or :func:`normlab.claims.run`.
        ids: which claims; all unless given.
        untested: also return the claims that the table cannot speak to, as ``not-tested``.
        own: of a sweep's models let each claim see only those of its own design, as where the claims of the
            catalogue share a table.

    Raises:
        UnknownNameError: no claim has one of the ids.
        DataError: the table lacks the columns of a sweep.
    """
    rows = _rows(table)
    chosen = [CLAIMS[name] for name in (CLAIMS if ids is None else ids)]
    found = [_judge_or_say(claim, rows, own) for claim in chosen]
    tested = [judgement for judgement in found if judgement.verdict.verdict != "not-tested"]
    adjusted: dict[str, float] = {}
    for family in dict.fromkeys(judgement.family for judgement in tested):
        members = [judgement for judgement in tested if judgement.family == family]
        p_values = holm([judgement.p for judgement in members])
        adjusted |= {judgement.verdict.id: p for judgement, p in zip(members, p_values, strict=True)}
    kept = found if untested else [one for one in found if one.failed or one.verdict.verdict != "not-tested"]
    return tuple(replace(judgement.verdict, p_holm=adjusted.get(judgement.verdict.id)) for judgement in kept)


def kept(table: pd.DataFrame, *, digits: int = 7) -> pd.DataFrame:
    """Return the rows that the catalogue's claims read of their own models, values rounded: enough to judge again.

    Args:
        table: of a run of claims.
        digits: significant digits of the values, about those of float32.
    """
    rows = _rows(table)
    parts = []
    for _, claim in CLAIMS.items():
        own = _of_specs(rows.of(claim), rows.own(claim))
        for regime in claim.regimes:
            models = choose(own, regime.query) if len(own) else own
            parts.append(choose(models, regime.statistic.query) if len(models) else models)
    found = pd.concat(parts).pipe(lambda joined: joined[~joined.index.duplicated()])
    rounded = [float(f"{value:.{digits}g}") for value in found["value"]]
    return ordered(normalise(found.assign(value=rounded)))


def _of_specs(rows: pd.DataFrame, specs: tuple[str, ...]) -> pd.DataFrame:
    """Keep computed numbers and the sweep's rows of these specs."""
    return rows[rows["spec"].isin(specs).to_numpy(dtype=bool) | (rows["quantity"] == QUANTITY).to_numpy(dtype=bool)]


def _rows(table: pd.DataFrame) -> _Rows:
    start = at_start(table)
    computed = (start["quantity"] == QUANTITY).to_numpy(dtype=bool)
    return _Rows(start[~computed], start[computed])


def false_verdicts_expected(verdicts: Sequence[Verdict]) -> float:
    """Return how many false verdicts to expect among these, at most: α for each regime that a test decided.

    Nothing is left to chance where every draw must obey: such a regime, whose level is 1, counts nothing.
    """
    return sum(
        verdict.alpha * sum(regime.verdict != "not-tested" and regime.level < 1 for regime in verdict.regimes)
        for verdict in verdicts
    )


def _judge_or_say(claim: Claim, rows: _Rows, own: bool) -> _Judgement:
    """Judge a claim; one that raises is not tested, and says why: it must not take the others along."""
    try:
        return _judge(claim, rows.of(claim), rows.own(claim) if own else None)
    except NormlabError as error:
        judgement = _judge(replace(claim, not_tested=f"Not judged: {error}."), rows.swept.iloc[:0])
        return replace(judgement, failed=True)


def _judge(claim: Claim, table: pd.DataFrame, specs: tuple[str, ...] | None = None) -> _Judgement:
    if specs is not None:
        table = _of_specs(table, specs)
    regimes = () if claim.not_tested else claim.regimes
    findings = tuple(finding for regime in regimes for finding in regime_findings(claim, regime, table))
    tested = tuple(finding for finding in findings if finding.decision is not None)
    # What is shown for contrast is not what the statement is about.
    heard = tuple(finding for finding in tested if not finding.regime.contrast)
    outcome = combine([finding.verdict.verdict for finding in heard], claim.together)
    nothing = "not-tested" if claim.needs else claim.expected
    expected = combine([finding.regime.expected for finding in heard], claim.together) if heard else nothing
    open_ones = [finding.decision for finding in heard if finding.verdict.verdict == "inconclusive"]
    wanted = [decision.seeds for decision in open_ones if decision is not None]
    seeds = max((count for count in wanted if count is not None), default=None)
    verdict = Verdict(
        id=claim.id,
        claim_version=claim.version,
        statement=claim.statement,
        source=claim.source,
        nature=claim.nature,
        verdict=outcome,
        reason=_reason(claim, outcome, findings),
        expected=expected,
        right_statement=claim.right_statement,
        regimes=tuple(finding.verdict for finding in findings),
        rule_hash=claim.rule_hash,
        alpha=claim.alpha,
        p_holm=None,
        seeds_to_decide=seeds if outcome == "inconclusive" and None not in wanted else None,
        rows=rows_used(table, dict.fromkeys(finding.regime for finding in tested if heard), specs),
        coverage_gaps=tuple(dict.fromkeys(gap for finding in findings for gap in finding.gaps)),
        plot=claim.plot,
        versions=versions(),
    )
    return _Judgement(verdict, claim.family, max((f.decision.p for f in heard if f.decision), default=1.0))


def _reason(claim: Claim, outcome: Outcome, findings: Sequence[Finding]) -> str:
    if claim.not_tested or (claim.needs and outcome == "not-tested"):
        return claim.not_tested or claim.needs
    said = reason(outcome, findings)
    return f"Ill-posed as worded; decided as: {claim.ill_posed} {said}" if claim.ill_posed else said
