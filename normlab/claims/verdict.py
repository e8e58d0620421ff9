"""What a judgement says: the verdict, its effect with an interval, its domain, and the rows behind it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any

from normlab.claims.finite_size import FiniteSize, Size
from normlab.claims.rules import Outcome
from normlab.digits import minus


@dataclass(frozen=True, kw_only=True)
class RegimeVerdict:
    """The verdict of one regime, for models that differ in depth and seed alone.

    Attributes:
        name: which regime, and which models where the table has several kinds.
        spec: the values of the cell columns that define the models; empty where none was tested.
        verdict: ``supported``, ``refuted``, ``inconclusive`` or ``not-tested``.
        effect: the statistic's mean over seeds.
        unit: its unit.
        low: lower end of the interval that decides.
        high: upper end.
        level: coverage of the interval.
        estimator: how the statistic is computed.
        margin: the rule's margin.
        rule: the rule in words.
        n_seeds: number of seeds.
        depths: depths of the models.
        widths: their widths.
        data: what they were run on.
        finite_size: the statistic at each width, where there are several, and what the width does to it.
        theory: the predicted effect, once there is one.
    """

    name: str
    spec: Mapping[str, object]
    verdict: Outcome
    effect: float
    unit: str
    low: float
    high: float
    level: float
    estimator: str
    margin: float
    rule: str
    n_seeds: int
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    data: str
    finite_size: FiniteSize | None = None
    theory: float | None = None

    @property
    def domain(self) -> str:
        """Depths, widths and data: what a verdict speaks about."""
        # A computation without a model has depth 0, and one without a vector width 0.
        sizes = [(noun, [size for size in found if size]) for noun, found in self._sizes]
        words = [f"{_plural(noun, found)} {', '.join(str(size) for size in found)}" for noun, found in sizes if found]
        return "; ".join([*words, self.data])

    @property
    def _sizes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return ("depth", self.depths), ("width", self.widths)

    def cite(self) -> str:
        """Return the verdict with its numbers and its domain, in words."""
        if self.verdict == "not-tested":
            return f"{self.name}: not tested"
        drawn = f"{self.n_seeds} {_plural('seed', range(self.n_seeds))}"
        span = f"range over {drawn}" if self.level == 1 else f"{self.level:.0%} interval, {drawn}"
        return minus(
            f"{self.name}: {self.verdict}, {self.unit} {self.effect:.3g} [{self.low:.3g}, {self.high:.3g}] "
            f"({span}; {self.domain})"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Verdict:
    """The verdict of a claim.

    Attributes:
        id: which claim.
        claim_version: its version.
        statement: what its source asserts.
        source: who asserts it.
        nature: ``exact``, ``construction``, ``law``, ``trend`` or ``cost``.
        verdict: ``supported``, ``refuted``, ``conditional`` (holds in one regime and fails in another),
            ``inconclusive`` or ``not-tested``; of the regimes that the table has.
        reason: why, in a sentence or two.
        expected: the verdict expected of the regimes that were tested.
        right_statement: what holds instead, or more exactly.
        regimes: the verdict of each.
        rule_hash: changes whenever what is judged or how it is decided does.
        alpha: probability of a false verdict, for each regime.
        p_holm: Holm's adjusted p-value within the family, where a family was judged together.
        seeds_to_decide: where inconclusive, how many seeds would probably decide.
        rows: the query that gives the rows used, the SHA-256 of their CSV text, and their count.
        coverage_gaps: what the table lacks or what was left out.
        plot: name of the plot that shows it.
        versions: of normlab, Python and the libraries.
    """

    id: str
    claim_version: int
    statement: str
    source: str
    nature: str
    verdict: Outcome
    reason: str
    expected: Outcome
    right_statement: str
    regimes: tuple[RegimeVerdict, ...]
    rule_hash: str
    alpha: float
    p_holm: float | None
    seeds_to_decide: int | None
    rows: Mapping[str, str | int]
    coverage_gaps: tuple[str, ...]
    plot: str
    versions: Mapping[str, str]

    @property
    def corrects(self) -> bool:
        """Whether the statement does not hold as it is asserted."""
        return self.verdict in ("refuted", "conditional")

    def to_json(self) -> dict[str, Any]:
        """Return every field as JSON has it; numbers that are not finite become ``None``."""
        return {field.name: _jsonable(getattr(self, field.name)) for field in fields(self)}

    def cite(self) -> str:
        """Return a sentence with the verdict, its numbers and domain, and the hash of the rows used."""
        regimes = "; ".join(regime.cite() for regime in self.regimes) or "no regime"
        return (
            f"{self.id} (version {self.claim_version}) is {self.verdict}: {regimes}. "
            f"{self.rows['count']} rows with SHA-256 {str(self.rows['hash'])[:12]}, rule {self.rule_hash}, "
            f"normlab {self.versions.get('normlab', 'unknown')}."
        )

    def __repr__(self) -> str:
        return f"<Verdict {self.id}: {self.verdict}>"

    def _repr_html_(self) -> str:
        rows = "".join(_html_row(regime) for regime in self.regimes)
        gaps = "".join(f"<li>{escape(gap)}</li>" for gap in self.coverage_gaps)
        return (
            f"<h4>{escape(self.id)}: {self.verdict}</h4><p>{escape(self.statement)}</p><p>{escape(self.reason)}</p>"
            f"<table><thead><tr><th>regime</th><th>verdict</th><th>effect</th><th>interval</th><th>domain</th>"
            f"</tr></thead><tbody>{rows}</tbody></table>" + (f"<ul>{gaps}</ul>" if gaps else "")
        )


def _html_row(regime: RegimeVerdict) -> str:
    tested = regime.verdict != "not-tested"
    effect = minus(f"{regime.unit} {regime.effect:.3g}") if tested else ""
    span = minus(f"[{regime.low:.3g}, {regime.high:.3g}]")
    interval = f"{span} ({regime.level:.0%}, n = {regime.n_seeds})" if tested else ""
    cells = (regime.name, regime.verdict, effect, interval, regime.domain if tested else "")
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _jsonable(value: object) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case RegimeVerdict() | FiniteSize() | Size():
            return {field.name: _jsonable(getattr(value, field.name)) for field in fields(value)}
        case Mapping():
            return {str(name): _jsonable(item) for name, item in value.items()}
        case tuple() | list():
            return [_jsonable(item) for item in value]
    return value


def _plural(noun: str, things: Sequence[object]) -> str:
    return noun if len(things) == 1 else f"{noun}s"
