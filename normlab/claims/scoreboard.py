"""The scoreboard: verdicts as a Markdown page."""

from collections.abc import Sequence

from normlab.claims.claim import CLAIMS
from normlab.claims.verdict import RegimeVerdict, Verdict

_HEADER = """# Claims and verdicts

What the literature and its expositions say about normalization, as they say it, and what data say. Written by
`normlab claims`; a verdict speaks for the depths, widths and data that stand with it.
"""


def scoreboard(verdicts: Sequence[Verdict]) -> str:
    """Return the page: a table for each family, each claim's regimes, and the statements to correct."""
    families: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        families.setdefault(CLAIMS[verdict.id].family, []).append(verdict)
    parts = [_HEADER, _counts(verdicts)]
    for family, members in families.items():
        parts += [f"## {family.capitalize()}", _table(members), *(_details(verdict) for verdict in members)]
    parts += ["## Corrections", *(_correction(verdict) for verdict in verdicts if _wrong(verdict))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _counts(verdicts: Sequence[Verdict]) -> str:
    words = ("supported", "refuted", "conditional", "inconclusive", "not-tested")
    return ", ".join(f"{sum(verdict.verdict == word for verdict in verdicts)} {word}" for word in words) + "."


def _table(verdicts: Sequence[Verdict]) -> str:
    rows = [f"| [{verdict.id}](#{verdict.id}) | {verdict.statement} | {_word(verdict)} |" for verdict in verdicts]
    return "\n".join(["| claim | statement | verdict |", "|---|---|---|", *rows])


def _word(verdict: Verdict) -> str:
    reason = CLAIMS[verdict.id].not_tested
    return f"{verdict.verdict} ({reason})" if reason else f"**{verdict.verdict}**"


def _details(verdict: Verdict) -> str:
    claim = CLAIMS[verdict.id]
    if claim.not_tested:
        return ""
    lines = [f"### {verdict.id}", "", f"{verdict.statement} *{verdict.source}*", ""]
    lines += [_regime(regime) for regime in verdict.regimes]
    if claim.ill_posed:
        lines += ["", f"Ill-posed as worded; decided in its place: {claim.ill_posed}"]
    return "\n".join([*lines, "", f"What holds: {verdict.right_statement}"])


def _regime(regime: RegimeVerdict) -> str:
    if regime.verdict == "not-tested":
        return f"- {regime.name}: not tested"
    numbers = f"{regime.effect:.3g} [{regime.low:.3g}, {regime.high:.3g}]"
    return f"- {regime.name}: **{regime.verdict}**, {regime.unit} {numbers}, {regime.n_seeds} seeds ({regime.domain})"


def _wrong(verdict: Verdict) -> bool:
    return verdict.verdict in ("refuted", "conditional")


def _correction(verdict: Verdict) -> str:
    return f"- *{verdict.statement}* {verdict.right_statement} ({verdict.cite()})"
