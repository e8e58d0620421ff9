"""The parts that most claims are built of."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from normlab.claims.claim import Claim, Design, Gap, Nature, Regime, Sample, Statistic, register_claim
from normlab.claims.evidence import QUANTITY, Evidence
from normlab.claims.exactness import AtMost
from normlab.claims.over_depth import FEWEST_DEPTHS, whole_numbers
from normlab.claims.rules import Outcome, Rule
from normlab.fits import Curves, curves, least_squares_slopes

_MEASURED = "normlab.claims.measured"


#: Computations in which nothing is random.
_CERTAIN = {"norms.worked_examples", "precision.cancellation", "precision.overflow", "architecture.census",
            "architecture.parameter_counts"}  # fmt: skip
#: Computations that read the clock.
_TIMED = {"cost.numpy_norms", "cost.step_time", "gpu.norm_times", "gpu.fused_add"}
#: Computations whose numbers are no longer those of their first version.
_VERSIONS = {"steps.one_step": 2, "steps.weight_noise": 2, "models.placements_that_agree": 2,
             "cost.numpy_norms": 2, "cost.step_time": 2}  # fmt: skip


def computation(name: str) -> Evidence:
    """Return the evidence ``module.function`` of :mod:`normlab.claims.measured`."""
    module, _, function = name.partition(".")
    version = _VERSIONS.get(name, 1)
    return Evidence(f"{_MEASURED}.{module}:{function}", version, once=name in _CERTAIN, alone=name in _TIMED)


def number(name: str, estimator: str, unit: str = "") -> Statistic:
    """Return the statistic that is the computed number ``name`` itself, one a seed."""

    def sample(rows: pd.DataFrame) -> Sample:
        found = rows[np.isfinite(rows["value"].to_numpy(dtype=np.float64))].sort_values("model_seed")
        if found.empty:
            raise Gap(f"the computed {name} has no finite value")
        lost = len(rows) - len(found)
        notes = (f"{lost} of {len(rows)} values are not finite",) if lost else ()
        return Sample(found["value"].to_numpy(dtype=np.float64), depths_of(found), notes)

    return Statistic(estimator, unit or "number", _named(name), sample)


def trend(name: str, estimator: str, unit: str = "log-log slope", x: str = "depth") -> Statistic:
    """Return each seed's slope of the logarithm of the computed ``name`` on that of ``x``."""

    def sample(rows: pd.DataFrame) -> Sample:
        found = against(rows, x)
        return Sample(
            least_squares_slopes(np.log(found.x), np.log(found.y)),
            whole_numbers(found.x) if x == "depth" else depths_of(rows),
            found.left_out,
            detail=", ".join(
                f"{value:.3g} at {x} {at:g}"
                for at, value in zip(found.x, np.exp(np.log(found.y).mean(axis=0)), strict=True)
            ),
        )

    return Statistic(estimator, unit, _named(name), sample)


def against(rows: pd.DataFrame, x: str, points: int = FEWEST_DEPTHS) -> Curves:
    """Return the rows' only quantity against a column, positive values alone, one curve a seed.

    Raises:
        Gap: fewer than ``points`` abscissae, or no seed.
    """
    quantity = str(rows["quantity"].iloc[0])
    found = curves(rows, quantity, x=x).positive().balanced()
    if not len(found.seeds) or len(found.x) < points:
        raise Gap(f"{points} values of {x} are needed and {len(found.x)} can be used")
    return found


def depths_of(rows: pd.DataFrame) -> tuple[int, ...]:
    """Return the depths of the rows' models."""
    return tuple(sorted(int(depth) for depth in rows["depth"].dropna().unique()))


def _named(name: str) -> str:
    return f"quantity == '{QUANTITY}' and name == '{name}'"


class Models(NamedTuple):
    """Which models of a sweep a regime speaks of.

    Attributes:
        query: on a table's cell columns.
        words: the same in words.
    """

    query: str
    words: str


def regime(
    name: str,
    statistic: Statistic,
    rule: Rule,
    expected: Outcome = "supported",
    *,
    among: Models | None = None,
    query: str = "",
    models: str = "",
    compared: tuple[str, ...] = (),
    contrast: bool = False,
    not_tested: str = "",
) -> Regime:
    """Return a regime; one that reads computed numbers needs no query of its own, and a contrast says so."""
    if among is not None:
        query, models = among
    if statistic.computed and not query:
        query, models = statistic.query, models or f"computed numbers of {name!r}"
    name = f"{name}, for contrast" if contrast else name
    return Regime(name, query, models, statistic, rule, expected, compared, contrast, not_tested)


def exact(
    id: str,
    family: str,
    evidence: str | tuple[str, ...],
    regimes: tuple[Regime, ...],
    *,
    statement: str,
    source: str,
    refuted_by: str,
    right: str,
    nature: Nature = "exact",
    version: int = 1,
    wider: tuple[str, ...] = (),
    **more: Any,
) -> Claim:
    """Register a claim that computations decide; those of ``wider`` are for full runs alone."""
    names = (evidence,) if isinstance(evidence, str) else evidence
    return register_claim(
        Claim(
            id=id,
            version=version,
            family=family,
            statement=statement,
            source=source,
            nature=nature,
            regimes=regimes,
            refuted_by=refuted_by,
            right_statement=right,
            design=Design(
                evidence=tuple(computation(name) for name in names),
                wider=tuple(computation(name) for name in wider),
            ),
            **more,
        )
    )


def identity(id: str, estimator: str, *, within: float = 1e-10, name: str = "identity") -> tuple[Regime, ...]:
    """Return the one regime of a statement that holds to rounding: the number ``id`` is at most ``within``."""
    return (regime(name, number(id, estimator, "deviation"), AtMost(within)),)


def swept(
    id: str,
    family: str,
    regimes: tuple[Regime, ...],
    grids: tuple[Mapping[str, Any], ...],
    *,
    statement: str,
    source: str,
    refuted_by: str,
    right: str,
    nature: Nature = "law",
    version: int = 1,
    widths: tuple[int, ...] = (64, 128),
    **more: Any,
) -> Claim:
    """Register a claim that a sweep decides; a quick run has the first of ``widths``."""
    return register_claim(
        Claim(
            id=id,
            version=version,
            family=family,
            statement=statement,
            source=source,
            nature=nature,
            regimes=regimes,
            refuted_by=refuted_by,
            right_statement=right,
            design=Design(grids=grids, widths=widths, quick_width=widths[0]),
            **more,
        )
    )
