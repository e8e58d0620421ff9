"""Running claims: the union of what they need, each cell and computation once, kept in one folder."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from normlab.claims.claim import CLAIMS, Claim
from normlab.claims.computing import FOLDER, Computed, computations, newest
from normlab.claims.evidence import Evidence, unique
from normlab.claims.judging import judge
from normlab.claims.verdict import Verdict
from normlab.schema import CELL_COLUMNS, COLUMNS
from normlab.table import concat, normalise, read_csv

if TYPE_CHECKING:
    from normlab.data import Source
    from normlab.spec import ModelSpec

#: What the catalogue's sweeps record, and where: every statistic reads these alone.
SITES = ("stream", "update", "input", "final", "stream_grad")
QUANTITIES = ("mean_square", "token_overlap", "update_ratio", "alignment", "l2", "grad_norm")  # fmt: skip

_MODEL = tuple(
    name
    for name in CELL_COLUMNS
    if name not in ("spec", "data", "batch", "tokens", "loss", "model_seed", "data_seed", "step")
)


@dataclass(frozen=True, eq=False)
class Plan:
    """What settles some claims.

    Attributes:
        specs: models to sweep, each once.
        evidence: computations, each once.
        seeds: one cell a spec and seed, one result a computation and seed.
    """

    specs: "tuple[ModelSpec, ...]"
    evidence: tuple[Evidence, ...]
    seeds: tuple[int, ...]

    @property
    def tasks(self) -> int:
        """Number of cells and computations."""
        return len(self.seeds) * (len(self.specs) + len(self.evidence))


def plan(ids: Iterable[str] | None = None, *, quick: bool = False, seeds: Sequence[int] | None = None) -> Plan:
    """Return the union of what claims need.

    Args:
        ids: which claims; all unless given.
        quick: eight seeds and one width in place of sixteen and two.
        seeds: other seeds.

    Raises:
        UnknownNameError: no claim has one of the ids.
    """
    from normlab.sweeps import grid

    chosen = [claim for claim in _claims(ids) if not claim.not_tested and available(claim.needs)]
    specs = (spec for claim in chosen for axes in claim.design.axes(quick=quick) for spec in grid(**axes))
    counts = [claim.design.quick_seeds if quick else claim.design.seeds for claim in chosen]
    return Plan(
        specs=_distinct(specs),
        evidence=tuple(unique(each for claim in chosen for each in claim.design.computations(quick=quick))),
        seeds=tuple(seeds) if seeds is not None else tuple(range(max(counts, default=0))),
    )


def available(needs: str) -> bool:
    """Return whether this machine has what a claim needs: ``gpu``, or nothing in particular."""
    if needs != "gpu":
        return not needs
    import torch

    return torch.cuda.is_available()


def run(
    ids: Iterable[str] | None = None,
    *,
    quick: bool = False,
    seeds: Sequence[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    data: "Source | None" = None,
    computed: Computed | None = None,
    jobs: int | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Measure and compute what settles claims, and return the table.

    Args:
        ids: which claims; all unless given.
        quick: eight seeds and one width in place of sixteen and two.
        seeds: other seeds.
        out: folder of the run, created or extended: what it has is not run again. A temporary one unless
            given. :func:`normlab.load` reads its sweep, :func:`read` all of it.
        data: other data for the sweeps than two sequences of 64 random tokens.
        computed: called after every computation with how many are done, how many there are, and its name.
        jobs: number of worker processes; as many as cores unless given. With 1 everything runs in this process.
        options: passed on to :func:`normlab.sweep`, such as ``progress=``.

    Raises:
        UnknownNameError: no claim has one of the ids.
        RunError: ``out`` cannot be written, or belongs to another kind of run.
    """
    wanted = plan(ids, quick=quick, seeds=seeds)
    if out is not None:
        return _run(wanted, Path(out), data, computed, jobs, options)
    with tempfile.TemporaryDirectory(prefix="normlab-claims-") as folder:
        return _run(wanted, Path(folder), data, computed, jobs, options)


def check(claim_id: str, *, quick: bool = False, **options: Any) -> Verdict:
    """Run what settles a claim, and judge it.

    Args:
        claim_id: which claim.
        quick: eight seeds and one width in place of sixteen and two.
        options: of :func:`run`, such as ``seeds=``, ``out=`` or ``jobs=``.

    Raises:
        UnknownNameError: no claim has that id.
    """
    claim = CLAIMS[claim_id]
    table = _nothing() if claim.not_tested or not available(claim.needs) else run([claim_id], quick=quick, **options)
    return judge(claim_id, table)


def read(out: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table of a run's folder: its sweep, and what was computed there.

    Raises:
        RunError: the folder holds neither.
    """
    from normlab.sweeps import load

    folder = Path(out)
    kept = newest(folder / FOLDER)
    if not kept:
        return load(folder)
    computed = [read_csv(path) for path in kept]
    return concat([load(folder), *computed] if (folder / "run.json").exists() else computed)


def model_of(columns: Mapping[str, object]) -> tuple[str, ...]:
    """Return what columns say of a model, without its id.

    A field that is left out and one that says what it would be anyway make two ids of one model.
    """
    values = ("" if value is None or pd.isna(value) else value for value in map(columns.get, _MODEL))  # type: ignore[call-overload]
    return tuple(str(float(value)) if isinstance(value, Real) else str(value) for value in values)


def models_of(claim: Claim) -> frozenset[tuple[str, ...]]:
    """Return the models of a claim's design, of a quick run and of a full one."""
    from normlab.sweeps import grid

    axes = (axes for quick in (True, False) for axes in claim.design.axes(quick=quick))
    return frozenset(model_of(spec.columns()) for each in axes for spec in grid(**each))


def _distinct(specs: "Iterable[ModelSpec]") -> "tuple[ModelSpec, ...]":
    found: dict[tuple[str, ...], ModelSpec] = {}
    for spec in specs:
        found.setdefault(model_of(spec.columns()), spec)
    return tuple(found.values())


def _claims(ids: Iterable[str] | None) -> Iterator[Claim]:
    yield from (CLAIMS[name] for name in (CLAIMS if ids is None else ids))


def _nothing() -> pd.DataFrame:
    return normalise(pd.DataFrame({name: [] for name in (*COLUMNS, *CELL_COLUMNS)}))


def _run(
    wanted: Plan,
    folder: Path,
    data: "Source | None",
    computed: Computed | None,
    jobs: int | None,
    options: dict[str, Any],
) -> pd.DataFrame:
    parts = [_nothing(), *computations(wanted.evidence, wanted.seeds, folder / FOLDER, jobs=jobs, computed=computed)]
    if wanted.specs:
        from normlab.data import Random
        from normlab.sweeps import sweep

        source = data if data is not None else Random(batch=2, tokens=64)
        swept = sweep(
            wanted.specs,
            seeds=wanted.seeds,
            data=source,
            out=folder,
            sites=SITES,
            quantities=QUANTITIES,
            jobs=jobs,
            **options,
        )
        parts.append(swept)
    return concat(parts)
