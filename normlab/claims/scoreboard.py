"""The scoreboard: verdicts as a Markdown page."""

from collections.abc import Mapping, Sequence

from normlab.claims.claim import CLAIMS
from normlab.claims.judging import false_verdicts_expected
from normlab.claims.verdict import RegimeVerdict, Verdict
from normlab.digits import minus

_HEADER = """# Claims and verdicts

What the literature and its expositions say about normalization, as they say it, and what data say. Written by
`normlab claims`; a verdict speaks for the depths, widths and data that stand with it.
"""
_COLUMNS = """Each claim decides at its own α. Holm's p, corrected within the family, says which verdicts would stand if
all of a family's had to be right together; where every draw must obey, nothing is left to chance and there is none.
"""


def scoreboard(
    verdicts: Sequence[Verdict], *, seeds: Sequence[int] = (), versions: Mapping[str, str] | None = None
) -> str:
    """Return the page: a table for each family, each claim's regimes, and the statements to correct.

    Args:
        verdicts: what was found.
        seeds: of the run that they come from.
        versions: of what that run was made with.
    """
    families: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        families.setdefault(CLAIMS[verdict.id].family, []).append(verdict)
    parts = [_HEADER, _counts(verdicts), _made(seeds, versions or {}), _COLUMNS]
    for family, members in families.items():
        parts += [f"## {family[:1].upper()}{family[1:]}", _table(members), *(_details(verdict) for verdict in members)]
    parts += ["## Corrections", *(_correction(verdict) for verdict in verdicts if verdict.corrects)]
    return minus("\n\n".join(part.strip() for part in parts if part) + "\n")


def _counts(verdicts: Sequence[Verdict]) -> str:
    words = ("supported", "refuted", "conditional", "inconclusive", "not-tested")
    counts = ", ".join(f"{sum(verdict.verdict == word for verdict in verdicts)} {word}" for word in words)
    return f"{counts}; at most {false_verdicts_expected(verdicts):.2g} false verdicts of regimes to expect."


def _made(seeds: Sequence[int], versions: Mapping[str, str]) -> str:
    """With what the run was made."""
    numbers = sorted(seeds)
    if numbers and numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 1:
        said = [f"weights' seeds {numbers[0]} to {numbers[-1]}, data's the same plus 10000"]
    else:
        said = [f"weights' seeds {', '.join(map(str, numbers))}, data's the same plus 10000"] if numbers else []
    said += [f"{name} {version}" for name, version in versions.items()]
    return f"Made with {'; '.join(said)}." if said else ""


def _table(verdicts: Sequence[Verdict]) -> str:
    rows = [
        f"| [{verdict.id}](#{verdict.id}) | {verdict.statement} | {_word(verdict)} | {verdict.claim_version} | "
        f"{_holm(verdict)} |"
        for verdict in verdicts
    ]
    return "\n".join(["| claim | statement | verdict | version | Holm's p |", "|---|---|---|---|---|", *rows])


def _word(verdict: Verdict) -> str:
    if verdict.verdict != "not-tested":
        return f"**{verdict.verdict}**"
    claim = CLAIMS[verdict.id]
    why = claim.not_tested or claim.needs
    return f"not-tested ({why})" if why else "not-tested"


def _holm(verdict: Verdict) -> str:
    """Holm's p; none where nothing was tested, or nothing left to chance."""
    by_chance = any(regime.verdict != "not-tested" and regime.level < 1 for regime in verdict.regimes)
    return f"{verdict.p_holm:.1g}" if by_chance and verdict.p_holm is not None else "–"


def _details(verdict: Verdict) -> str:
    claim = CLAIMS[verdict.id]
    if claim.not_tested:
        return ""
    lines = [f"### {verdict.id}", "", f"{verdict.statement} *{verdict.source}*", ""]
    lines += [line for regime in verdict.regimes for line in _regime(regime)]
    if claim.ill_posed:
        lines += ["", f"Ill-posed as worded; decided in its place: {claim.ill_posed}"]
    lines += ["", f"What holds: {verdict.right_statement}"]
    if claim.history:
        lines += ["", f"How it was decided: {claim.history}"]
    chance = f"α = {verdict.alpha:g}, " if _holm(verdict) != "–" else ""
    return "\n".join([*lines, "", f"Version {verdict.claim_version}, {chance}rule `{verdict.rule_hash}`."])


def _regime(regime: RegimeVerdict) -> list[str]:
    if regime.verdict == "not-tested":
        return [f"- {regime.name}: not tested"]
    said = regime.cite().removeprefix(minus(f"{regime.name}: {regime.verdict}"))
    lines = [f"- {regime.name}: **{regime.verdict}**{said}"]
    return lines + ([f"  - by width: {regime.finite_size.words}"] if regime.finite_size else [])


def _correction(verdict: Verdict) -> str:
    return f"- *{verdict.statement}* {verdict.right_statement} ({verdict.cite()})"
