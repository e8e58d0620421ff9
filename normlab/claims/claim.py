"""What a claim is: a statement as its source asserts it, and how it is decided, fixed in advance."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pandas as pd

from normlab.claims.combining import Together, combine
from normlab.claims.evidence import QUANTITY, Evidence
from normlab.claims.rules import QUICK_SEEDS, Outcome, Rule
from normlab.fits.intervals import Floats
from normlab.registry import Registry

Nature: TypeAlias = Literal["exact", "construction", "law", "trend", "cost"]

#: Level at which each claim decides, whatever else is judged.
ALPHA = 0.01


class Gap(Exception):
    """Why a table cannot speak to a regime."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One number a seed.

    Attributes:
        values: the numbers, ``[seeds]``.
        depths: depths of the models that they come from.
        notes: what was left out and why.
        detail: a further finding that decides nothing.
    """

    values: Floats
    depths: tuple[int, ...]
    notes: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Statistic:
    """How one number a seed comes from a table.

    Attributes:
        estimator: what is computed, in words: which role or site, which fit.
        unit: the unit of the number.
        query: the rows that it reads, as a query on a table.
        sample: maps those rows, of models that differ in depth and seed alone, to a :class:`Sample`;
            raises :class:`Gap` where they do not suffice.
    """

    estimator: str
    unit: str
    query: str
    sample: Callable[[pd.DataFrame], Sample]

    @property
    def computed(self) -> bool:
        """Whether it reads what a claim's evidence computed, and not a sweep."""
        return f"quantity == '{QUANTITY}'" in self.query


@dataclass(frozen=True)
class Regime:
    """A world in which a statement is judged, or a part of the statement.

    Attributes:
        name: what distinguishes it, in a few words.
        query: the models that belong to it, as a query on a table's cell columns.
        models: the same in words, for the sentence that says that a table has none.
        statistic: one number a seed.
        rule: what the interval over seeds must show.
        expected: the verdict that theory, or an earlier measurement, predicts.
        compared: cell columns in which the compared models differ on purpose.
        contrast: whether it is shown beside the models that the statement is about, and decides nothing.
        not_tested: why nothing here can test it, such as ``weights`` of trained models, or nothing.
    """

    name: str
    query: str
    models: str
    statistic: Statistic
    rule: Rule
    expected: Outcome
    compared: tuple[str, ...] = ()
    contrast: bool = False
    not_tested: str = ""


@dataclass(frozen=True)
class Design:
    """What settles a claim: the grids of a sweep, and computations.

    Every sweep of the catalogue runs on the same data, so that claims share cells.

    Attributes:
        grids: axes of :func:`normlab.sweeps.grid`, one mapping a grid, without a width unless it is one
            that the claim is about.
        evidence: computations; each runs once a seed.
        wider: the same computations in wider models, for full runs alone.
        seeds: seeds of a full run.
        quick_seeds: seeds of a quick run.
        widths: widths of a full run: the second shows what a finite width does.
        quick_width: width of a quick run.
    """

    grids: tuple[Mapping[str, Any], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    wider: tuple[Evidence, ...] = ()
    seeds: int = 16
    quick_seeds: int = QUICK_SEEDS
    widths: tuple[int, ...] = (64, 128)
    quick_width: int = 64

    def computations(self, *, quick: bool) -> tuple[Evidence, ...]:
        """Return what is computed."""
        return self.evidence if quick else (*self.evidence, *self.wider)

    def axes(self, *, quick: bool) -> tuple[dict[str, Any], ...]:
        """Return the grids with their widths."""
        widths = [self.quick_width] if quick else list(self.widths)
        return tuple({"width": widths} | dict(axes) for axes in self.grids)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement about normalization, and everything that decides it.

    Attributes:
        id: its name in the registry, on the command line and in files.
        version: raised whenever the statement or its rule changes.
        family: claims whose p-values Holm's correction takes together.
        statement: as the source asserts it.
        source: who asserts it.
        nature: ``exact``, ``construction`` (true by construction at unit gain), ``law``, ``trend`` or
            ``cost``.
        regimes: where it is judged, each with its statistic and rule.
        together: whether ``regimes`` are worlds, or parts that must all hold.
        refuted_by: what would refute it.
        right_statement: what holds instead, or more exactly.
        plot: name of the plot that shows it.
        design: the sweep, or the computation, that settles it.
        alpha: level at which it decides.
        not_tested: why nothing here can test it (``training``, ``weights``, ``source-only``), or nothing.
        needs: what a machine must have to test it (``gpu``); without it the claim is not tested, for this reason.
        ill_posed: where the wording cannot be decided, the wording that was decided in its place.
        history: what of its design or rule was changed after data had been seen, and why.
    """

    id: str
    version: int
    family: str
    statement: str
    source: str
    nature: Nature
    regimes: tuple[Regime, ...]
    refuted_by: str
    right_statement: str
    plot: str = ""
    design: Design = field(default=Design(), repr=False)
    together: Together = "regimes"
    alpha: float = ALPHA
    not_tested: str = ""
    needs: str = ""
    ill_posed: str = ""
    history: str = ""

    @property
    def name(self) -> str:
        """The registry's name for the id."""
        return self.id

    @property
    def expected(self) -> Outcome:
        """The verdict expected where every regime is tested."""
        asked = [item.expected for item in self.regimes if not item.contrast and not item.not_tested]
        return "not-tested" if self.not_tested else combine(asked, self.together)

    @property
    def rule_hash(self) -> str:
        """Twelve hexadecimal digits that change whenever what is judged or how it is decided does."""
        fixed = [self.id, self.version, self.statement, self.together, self.alpha] + [
            [
                regime.name,
                regime.query,
                list(regime.compared),
                *(["contrast"] if regime.contrast else []),
                *([regime.not_tested] if regime.not_tested else []),
                regime.statistic.estimator,
                regime.statistic.query,
                repr(regime.rule),
                regime.rule.text,
            ]
            for regime in self.regimes
        ]
        return hashlib.sha256(json.dumps(fixed).encode()).hexdigest()[:12]


CLAIMS: Registry[Claim] = Registry("claim")


def register_claim(claim: Claim, *, replace: bool = False) -> Claim:
    """Add a claim of your own: :func:`normlab.claims.judge` and every command then know it by its id.

    Raises:
        NormlabError: another claim has that id and ``replace`` is false.
    """
    return CLAIMS.register(claim, replace=replace)
