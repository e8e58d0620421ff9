"""Why a claim has its verdict, in words."""

from collections.abc import Sequence

from normlab.claims.findings import Finding
from normlab.claims.rules import Outcome
from normlab.fits import FEWEST_SEEDS

_HEADINGS = {"supported": "Holds", "refuted": "Fails", "inconclusive": "Not decided", "not-tested": "Not tested"}


def reason(outcome: Outcome, findings: Sequence[Finding]) -> str:
    """Return why a claim has its verdict: what holds, what fails, what is open, and what else was found."""
    if outcome == "not-tested":
        return _sentences([gap for finding in findings for gap in finding.gaps])
    said = [
        f"{heading}: {'; '.join(_said(finding) for finding in findings if finding.verdict.verdict == verdict)}"
        for verdict, heading in _HEADINGS.items()
        if any(finding.verdict.verdict == verdict for finding in findings)
    ]
    details = [f"{finding.verdict.name}: {finding.detail}" for finding in findings if finding.detail]
    return _sentences([*said, *details])


def _said(finding: Finding) -> str:
    verdict, decision = finding.verdict, finding.decision
    if decision is None or verdict.verdict != "inconclusive":
        return verdict.name
    if verdict.n_seeds < FEWEST_SEEDS:
        have = f"{verdict.n_seeds} of the {FEWEST_SEEDS} seeds that an interval needs"
        return f"{verdict.name} ({have}; run {decision.seeds})"
    if decision.seeds is None:
        return f"{verdict.name} (too close to the rule's bound to name a number of seeds)"
    return f"{verdict.name} (about {decision.seeds} seeds would decide)"


def _sentences(texts: Sequence[str]) -> str:
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in dict.fromkeys(texts))
