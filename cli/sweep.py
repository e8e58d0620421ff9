"""``normlab sweep``: the main job."""

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from normlab.cli.common import common
from normlab.cli.failures import CellsFailed, Command, Interrupted
from normlab.cli.output import Output, counted, refuse_others
from normlab.cli.progress import Watch, watch
from normlab.cli.spec_options import axes, spec_options

if TYPE_CHECKING:
    import pandas as pd

    from normlab.data import Random, Text
    from normlab.spec import ModelSpec


@click.command(cls=Command, short_help="Measure a grid of models; leave plots, verdicts, a report.")
@spec_options
@click.option(
    "--seeds", type=click.IntRange(min=1), metavar="K", default=5, help="Number of models, each with data of its own."
)
@click.option("--batch", type=click.IntRange(min=1), metavar="N", default=4, help="Sequences in a batch.")
@click.option("--tokens", type=click.IntRange(min=1), metavar="N", default=128, help="Tokens in a sequence.")
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    help="UTF-8 file to read bytes from; without it the documentation of Python's standard library.",
)
@click.option("--random", "random_tokens", is_flag=True, help="Random tokens and targets in place of text.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Worker processes; all cores unless given, 1 runs inline."
)
@click.option("--dry-run", is_flag=True, help="Say what would run, and write nothing.")
@click.option("--no-report", is_flag=True, help="Write the data alone: no plots, no verdicts, no report.")
@common(
    out="Folder of the run; without it one under runs/ that is named after the models and the data, "
    "so that the same command goes on where it stopped.",
    seed="First seed: model s is drawn with seed s, its data with 10000 + s.",
)
def sweep(
    output: Output,
    out: Path | None,
    seed: int,
    plugin: tuple[str, ...],
    seeds: int,
    jobs: int | None,
    dry_run: bool,
    no_report: bool,
    **values: Any,
) -> None:
    """Record every combination of the models given, at initialisation, and report what they do with depth.

    Options that describe the model may be repeated, one model each; together they span a grid. The same --out
    again computes what is missing, and a larger grid extends it.

    \b
    In --out: run.json (what was run), cells.jsonl (one line a finished cell), cells/ (their rows),
    results.csv.gz (the whole table), plots/ and report.html.
    """
    chosen = axes(values)
    from normlab.sweeps import grid

    specs = grid(**chosen)
    data = _data(specs, values)
    out = out or _folder(specs, data)
    refuse_others(out, "run.json")
    numbers = range(seed, seed + seeds)
    plan = {"out": str(out), "models": len(specs), "seeds": seeds, "cells": len(specs) * seeds}
    plan["present"] = _present(specs, numbers, data, out)
    if dry_run:
        output.machine(plan | {"data": data.columns(), "specs": [spec.to_dict() for spec in specs]})
        output.result(_announcement(plan))
        return
    output.note(_announcement(plan))
    with watch(quiet=output.quiet, jobs=jobs) as progress:
        table = _measure(specs, data, out, progress, seeds=numbers, jobs=jobs, plugins=plugin)
    findings = {} if no_report else _report(output, table, out)
    if no_report and _outdated(out):
        output.note(f"{out / 'report.html'} shows an earlier state of the run: without --no-report it is written again")
    output.machine(plan | {"failed": progress.failed} | findings)
    if progress.failed:
        raise CellsFailed(_failures(out))


def _data(specs: "Sequence[ModelSpec]", values: dict[str, Any]) -> "Text | Random":
    from normlab.data import Random, Text

    if not values["random_tokens"]:
        return Text(batch=values["batch"], tokens=values["tokens"], path=values["text"] and str(values["text"]))
    if values["text"] is not None:
        raise click.UsageError("--text and --random exclude each other: give one of them")
    # Every model of the grid must know every token.
    return Random(batch=values["batch"], tokens=values["tokens"], vocab=min(spec.vocab for spec in specs))


def _folder(specs: "Sequence[ModelSpec]", data: "Text | Random") -> Path:
    """Name a folder after the models and the data, but not the seeds: more seeds extend a run."""
    identity = repr((sorted(spec.id for spec in specs), sorted(data.to_dict().items())))
    return Path("runs") / f"sweep-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def _announcement(plan: dict[str, Any]) -> str:
    cells, models, seeds = (counted(plan[f"{noun}s"], noun) for noun in ("cell", "model", "seed"))
    present = plan["present"]
    resumed = f", {present} already there, {plan['cells'] - present} to run" if present else ""
    return f"{cells} ({models} × {seeds}) -> {plan['out']}{resumed}"


def _present(specs: "Sequence[ModelSpec]", seeds: range, data: "Text | Random", out: Path) -> int:
    """Count the cells that a run in ``out`` has already."""
    from normlab.errors import RunError
    from normlab.sweeps import Cell, read_run

    if not (out / "run.json").exists():
        return 0
    try:
        known = {record.id for record in read_run(out).ok}
    except RunError:
        return 0  # the sweep will say what is wrong with the folder
    return sum(Cell(spec, seed, data).id in known for spec in specs for seed in seeds)


def _outdated(out: Path) -> bool:
    """Whether there is a report that is older than the table."""
    page, table = out / "report.html", out / "results.csv.gz"
    return page.exists() and table.exists() and page.stat().st_mtime < table.stat().st_mtime


def _measure(
    specs: "Sequence[ModelSpec]", data: "Text | Random", out: Path, progress: Watch, **how: Any
) -> "pd.DataFrame":
    from normlab.sweeps import sweep as run

    # What failed is named at the end, with the exit code that says so.
    warnings.filterwarnings("ignore", r"\d+ of \d+ cells failed")
    try:
        return run(specs, data=data, out=out, progress=progress, **how)
    except KeyboardInterrupt as error:
        saved = f"{progress.done} of {progress.total} cells are" if progress.total else "what was measured is"
        raise Interrupted(f"{saved} saved in {out}; the same command goes on from there") from error


def _failures(out: Path, most: int = 10) -> str:
    """Name the cells without a result, and why."""
    from normlab.sweeps import read_run

    failed = read_run(out).failed
    lines = [f"  {record.label}: {record.error or record.status}" for record in failed[:most]]
    if len(failed) > most:
        lines.append(f"  and {len(failed) - most} more, in {out / 'cells.jsonl'}")
    heading = f"{counted(len(failed), 'cell')} failed; the others are saved in {out}, and the same command tries again:"
    return "\n".join([heading, *lines])


def _report(output: Output, table: "pd.DataFrame", out: Path) -> dict[str, Any]:
    """Write plots and report, show the verdicts, and return what --json says of them."""
    from normlab.claims import judge_all
    from normlab.cli.verdicts import not_judged, verdict_table
    from normlab.plots import write_plots
    from normlab.reports import report
    from normlab.sweeps.predicted import theory_of

    output.note("predicting the curves")
    theory = theory_of(table, out).table
    output.note("drawing the plots")
    plots = write_plots(table, out / "plots", theory=theory)
    output.note("writing the report")
    page = report(out, out / "report.html")
    judged = judge_all(table, untested=True)
    verdicts = [verdict for verdict in judged if verdict.verdict != "not-tested"]
    others = [verdict for verdict in judged if verdict.verdict == "not-tested"]
    if verdicts:
        output.show(verdict_table(verdicts))
    output.note(not_judged(others, alone=not verdicts))
    output.result(f"Report: {page}")
    return {
        "report": str(page),
        "plots": [str(plot) for plot in plots],
        "claims": [verdict.to_json() for verdict in verdicts],
    }
