"""What the report on a run of claims shows: verdicts by family, the statements to correct, and computed numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import getdoc
from typing import Any, Final

import pandas as pd

from normlab.claims import CLAIMS, Claim, RegimeVerdict, Verdict
from normlab.claims.evidence import QUANTITY

_ORDER: Final = ("supported", "refuted", "conditional", "inconclusive", "not-tested")
#: Columns that tell the rows of one computed number apart.
_APART: Final = ("placement", "norm", "depth", "width", "layer", "call", "tokens")


@dataclass(frozen=True)
class ClaimView:
    """A claim as the page shows it.

    Attributes:
        claim: the claim.
        verdict: its verdict.
        headline: the regimes whose effect the summary prints: the first that was decided each way.
    """

    claim: Claim
    verdict: Verdict
    headline: tuple[RegimeVerdict, ...]

    @property
    def decided(self) -> tuple[RegimeVerdict, ...]:
        """The regimes that were tested."""
        return tuple(regime for regime in self.verdict.regimes if regime.verdict != "not-tested")

    @property
    def untested(self) -> tuple[RegimeVerdict, ...]:
        """The regimes that were not."""
        return tuple(regime for regime in self.verdict.regimes if regime.verdict == "not-tested")

    @property
    def why_not(self) -> str:
        """Why nothing was tested: a word where the catalogue has one."""
        return self.claim.not_tested or self.claim.needs or self.verdict.reason


@dataclass(frozen=True)
class Family:
    """The claims of a family, in the order of the catalogue."""

    name: str
    claims: tuple[ClaimView, ...]

    @property
    def title(self) -> str:
        """Its name as a heading."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return "family-" + "".join(letter if letter.isalnum() else "-" for letter in self.name.lower())


@dataclass(frozen=True)
class Computed:
    """What one computation found.

    Attributes:
        name: of the function.
        words: what it does, in a sentence.
        seeds: how often it ran.
        numbers: one row each: name, of which model or size, mean, smallest and largest over seeds.
    """

    name: str
    words: str
    seeds: int
    numbers: tuple[tuple[str, str, float, float, float], ...]


def families(verdicts: Sequence[Verdict]) -> tuple[Family, ...]:
    """Return the verdicts by family."""
    found: dict[str, list[ClaimView]] = {}
    for verdict in verdicts:
        claim = CLAIMS[verdict.id]
        found.setdefault(claim.family, []).append(ClaimView(claim, verdict, _headline(claim, verdict)))
    return tuple(Family(name, tuple(members)) for name, members in found.items())


def counts(verdicts: Sequence[Verdict]) -> tuple[tuple[str, int], ...]:
    """Return how many claims have each verdict."""
    found = [(word, sum(verdict.verdict == word for verdict in verdicts)) for word in _ORDER]
    return tuple((word, count) for word, count in found if count)


def _headline(claim: Claim, verdict: Verdict) -> tuple[RegimeVerdict, ...]:
    """The first regime that was decided each way; what is shown for contrast decided nothing."""
    beside = tuple(regime.name for regime in claim.regimes if regime.contrast)
    heard = [one for one in verdict.regimes if not one.name.startswith(beside)] if beside else list(verdict.regimes)
    first: dict[str, RegimeVerdict] = {}
    for regime in heard:
        first.setdefault(regime.verdict, regime)
    return tuple(first[word] for word in _ORDER[:-1] if word in first)


def computed(table: pd.DataFrame, verdicts: Sequence[Verdict]) -> tuple[Computed, ...]:
    """Return what the claims' computations found, aggregated over seeds, in the order of the catalogue."""
    rows = table[(table["quantity"] == QUANTITY).to_numpy(dtype=bool)]
    by_name = {str(name): part for name, part in rows.groupby("name", observed=True)}
    done: set[str] = set()
    return tuple(found for verdict in verdicts for found in _of(CLAIMS[verdict.id], by_name, done))


def _of(claim: Claim, by_name: dict[str, pd.DataFrame], done: set[str]) -> Iterator[Computed]:
    """What a claim's computations found that no claim before had; numbers are listed where they are first read."""
    names = [name for name in by_name if any(f"'{name}'" in regime.statistic.query for regime in claim.regimes)]
    new = [name for name in names if name not in done]
    done.update(new)
    if not new or not claim.design.evidence:
        return
    parts = [by_name[name] for name in new]
    seeds = max(int(part["model_seed"].nunique()) for part in parts)
    numbers = tuple(line for name, part in zip(new, parts, strict=True) for line in _numbers(name, part))
    words = " ".join(dict.fromkeys(_words(each.measure) for each in claim.design.evidence))
    yield Computed(claim.id, words, seeds, numbers)


def _words(measure: object) -> str:
    """The first sentence of what a computation says of itself."""
    if isinstance(measure, str):
        module, _, name = measure.partition(":")
        measure = getattr(import_module(module), name)
    return (getdoc(measure) or "").partition("\n\n")[0].replace("\n", " ")


def _numbers(name: str, part: pd.DataFrame) -> Iterator[tuple[str, str, float, float, float]]:
    by = [column for column in _APART if part[column].nunique() > 1]
    groups: Any = part.groupby(by, observed=True, dropna=False) if by else [((), part)]
    for key, group in groups:
        values = group["value"]
        where = ", ".join(f"{column} {value}" for column, value in zip(by, key, strict=True) if str(value) != "<NA>")
        yield name, where, float(values.mean()), float(values.min()), float(values.max())
