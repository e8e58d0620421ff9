"""``normlab claims``: the catalogue, and verdicts on a run of your own."""

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from normlab.cli.common import common
from normlab.cli.failures import Command, Failure
from normlab.cli.lazy import LazyGroup
from normlab.cli.output import Output, write_json
from normlab.digits import minus

if TYPE_CHECKING:
    from normlab.claims import Claim


@click.group(
    cls=LazyGroup,
    commands_at={
        "list": "normlab.cli.claims:list_claims",
        "show": "normlab.cli.claims:show",
        "judge": "normlab.cli.claims:judge",
        "run": "normlab.cli.claims_run:run_claims",
    },
    short_help="List, show, judge and run claims.",
)
def claims() -> None:
    """Published statements about normalization, each decided by data."""


def claim_named(name: str) -> "Claim":
    """Return the claim ``name``.

    Raises:
        click.UsageError: there is none; it names those that begin with ``name``, contain it, or resemble it.
    """
    from normlab.claims import CLAIMS

    if name in CLAIMS:
        return CLAIMS[name]
    begin = [id for id in CLAIMS if name and id.startswith(name)]
    contain = [id for id in CLAIMS if name and name in id]
    near = begin or contain or difflib.get_close_matches(name, list(CLAIMS), n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(repr(id) for id in near[:5])}?" if near else ";"
    raise click.UsageError(f"no claim is named {name!r}{meant} normlab claims list names them all")


@click.command("list", cls=Command)
@click.option("--family", metavar="NAME", help="Only claims whose family's name contains NAME.")
@common(out="Also write what --json prints to this file.")
def list_claims(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], family: str | None) -> None:
    """List the claims of the catalogue."""
    import json

    from rich import box
    from rich.table import Table

    from normlab.claims import catalog

    found = catalog()
    if family is not None:
        names = sorted(found["family"].unique())
        found = found[found["family"].str.contains(family, case=False, regex=False)]
        if found.empty:
            raise click.BadParameter(f"no family is named {family!r}: the families are {', '.join(names)}")
    rows = {"claims": json.loads(found.to_json(orient="records"))}
    if out is not None:
        write_json(out, rows)
    output.machine(rows)
    if not sys.stdout.isatty():  # one line a claim, for grep and cut
        output.result("\n".join(f"{row.id}\t{row.family}\t{row.statement}" for row in found.itertuples()))
        return
    table = Table("id", "family", "statement", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in found.itertuples():
        table.add_row(str(row.id), str(row.family), str(row.statement))
    output.show(table)


@click.command(cls=Command)
@click.argument("claim", metavar="ID")
@common(out="Also write what --json prints to this file.", options=False)
def show(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], claim: str) -> None:
    """Show the claim ID: what it states, how it is decided, and what would refute it."""
    import json

    from normlab.claims import catalog

    chosen = claim_named(claim)
    (row,) = json.loads(catalog().query("id == @claim").to_json(orient="records"))
    found = {"claims": [row]}
    if out is not None:
        write_json(out, found)
    output.machine(found)
    lines = [
        f"{chosen.id} (version {chosen.version}, {chosen.family}, {chosen.nature})",
        f"\n{chosen.statement}\n  {chosen.source}",
        *(f"\n{regime.name}: expected {regime.expected}\n  {regime.statistic.estimator}\n  {regime.rule.text}"
          for regime in chosen.regimes),
        f"\nRefuted by: {chosen.refuted_by}",
        f"What holds: {chosen.right_statement}",
    ]  # fmt: skip
    if chosen.not_tested:
        lines.append(f"Not tested: {chosen.not_tested}")
    if chosen.needs:
        lines.append(f"Needs: {chosen.needs}")
    if chosen.history:
        lines.append(f"How it was decided: {chosen.history}")
    if chosen.ill_posed:
        lines.append(f"Ill-posed as worded; decided in its place: {chosen.ill_posed}")
    output.result(minus("\n".join(lines)))


@click.command(cls=Command)
@click.argument("claim", metavar="ID")
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--strict", is_flag=True, help="Exit with 1 unless the verdict is the one that the catalogue expects.")
@common(out="Also write what --json prints to this file.")
def judge(
    output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], claim: str, run: Path, strict: bool
) -> None:
    """Judge the claim ID by the data of RUN, the folder of a sweep or of a run of claims."""
    from normlab.claims import judge as decide
    from normlab.claims import read
    from normlab.cli.verdicts import verdict_table

    claim_named(claim)  # an unknown name is said before a large table is read
    verdict = decide(claim, read(run))
    found = {"claims": [verdict.to_json()]}
    if out is not None:
        write_json(out, found)
    output.machine(found)
    output.result(f"{minus(verdict.statement)}\n")
    output.show(verdict_table([verdict]))
    output.result(verdict.cite())
    output.note(f"normlab claims show {claim} says what the number is and within which limits it supports the claim")
    if strict and verdict.verdict != verdict.expected:
        raise Failure(f"{claim} is {verdict.verdict}, and {verdict.expected} was expected")
