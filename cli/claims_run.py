"""``normlab claims run``: measure what settles claims, and judge them."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from normlab.cli.common import common
from normlab.cli.failures import Command, Failure, Interrupted
from normlab.cli.output import Output, counted, refuse_others, write_json
from normlab.cli.progress import computing, watch
from normlab.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from normlab.claims import Plan, Verdict

#: Seconds of one core that a computation of the catalogue takes in the mean.
_COMPUTATION: Final = 1.1


@click.command("run", cls=Command)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every claim of the catalogue; also what no ID means.")
@click.option("--quick/--full", default=True, help="8 seeds and one width, or 16 seeds and two widths.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="K", help="Another number of seeds.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Worker processes; all cores unless given.")
@click.option("--strict", is_flag=True, help="Exit with 1 unless every verdict is the one that the catalogue expects.")
@common(
    out="Folder of the run; without it one under runs/. The same folder again computes what is missing.",
    seed="First seed.",
)
def run_claims(
    output: Output,
    out: Path | None,
    seed: int,
    plugin: tuple[str, ...],
    ids: tuple[str, ...],
    every: bool,
    quick: bool,
    seeds: int | None,
    jobs: int | None,
    strict: bool,
) -> None:
    """Run what settles the claims ID, or all, and judge them.

    \b
    In --out: the sweep's folder (run.json, cells/, results.csv.gz), evidence/ (what was computed beside it),
    verdicts.json, verdicts.md and report.html.
    """
    from normlab.claims import CLAIMS, judge_all, measured_with, plan, scoreboard
    from normlab.cli.claims import claim_named
    from normlab.cli.verdicts import verdict_table
    from normlab.reports import claims_report

    if every and ids:
        raise click.UsageError("--all and IDs exclude each other: give one of them")
    for name in ids:
        claim_named(name)
    chosen = list(ids) or list(CLAIMS)
    count = seeds or max(CLAIMS[name].design.quick_seeds if quick else CLAIMS[name].design.seeds for name in chosen)
    numbers = range(seed, seed + count)
    out = out or Path("runs") / f"claims-{'quick' if quick else 'full'}"
    refuse_others(out, "run.json")
    wanted = plan(chosen, quick=quick, seeds=numbers)
    time = "what is there already is not run again" if out.exists() else _time(wanted, jobs)
    output.note(f"{counted(len(chosen), 'claim')}, {wanted.tasks} cells and computations -> {out}; {time}")
    table = _measured(chosen, quick, numbers, out, jobs, output)
    verdicts = judge_all(table, chosen, untested=True, own=True)
    found = {"claims": [verdict.to_json() for verdict in verdicts]}
    write_json(out / "verdicts.json", found)
    write_whole(out / "verdicts.md", scoreboard(verdicts, seeds=numbers, versions=measured_with(out)))
    page = claims_report(out, out / "report.html", verdicts, table)
    output.machine(found)
    output.show(verdict_table(verdicts, named=False))
    output.result(f"normlab claims show ID says what a claim's number is.\n{_summary(verdicts)}\nReport: {page}")
    _strict(verdicts, strict=strict)


def _time(wanted: "Plan", jobs: int | None) -> str:
    """Say how long it takes about, on cores like those on which the costs were measured."""
    from normlab.data import Random
    from normlab.sweeps import Cell
    from normlab.sweeps.cost import seconds

    workers, data = jobs or os.cpu_count() or 1, Random(batch=2, tokens=64)
    each = sum(seconds(Cell(spec, 0, data)) for spec in wanted.specs) + _COMPUTATION * len(wanted.evidence)
    minutes = math.ceil(len(wanted.seeds) * each / workers / 60)
    return f"this takes about {minutes} min with {counted(workers, 'worker')}"


def _measured(
    chosen: "Sequence[str]", quick: bool, seeds: range, out: Path, jobs: int | None, output: Output
) -> "pd.DataFrame":
    from normlab.claims import run

    try:
        with watch(quiet=output.quiet, jobs=jobs) as progress:
            computed = computing(quiet=output.quiet)
            return run(chosen, quick=quick, seeds=seeds, out=out, jobs=jobs, computed=computed, progress=progress)
    except KeyboardInterrupt as error:
        raise Interrupted(f"what was measured is saved in {out}; the same command goes on from there") from error


def _summary(verdicts: "Sequence[Verdict]") -> str:
    from normlab.claims import false_verdicts_expected

    words = ("supported", "refuted", "conditional", "inconclusive", "not-tested")
    counts = [f"{sum(verdict.verdict == word for verdict in verdicts)} {word}" for word in words]
    return f"{', '.join(counts)}; at most {false_verdicts_expected(verdicts):.2g} false verdicts to expect."


def _strict(verdicts: "Sequence[Verdict]", *, strict: bool) -> None:
    other = [verdict for verdict in verdicts if verdict.verdict != verdict.expected]
    if strict and other:
        said = "; ".join(f"{verdict.id} is {verdict.verdict}, not {verdict.expected}" for verdict in other)
        raise Failure(f"{len(other)} verdicts are not the expected ones: {said}")
