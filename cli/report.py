"""``normlab report``: the page that says what a run shows."""

from pathlib import Path

import click

from normlab.cli.common import common, folder_of
from normlab.cli.failures import Command
from normlab.cli.output import Output


@click.command(cls=Command, short_help="Write the report of a run.")
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@common(out="The file to write; report.html in RUN unless given.", options=False)
def report(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], run: Path) -> None:
    """Write the report of RUN, the folder of a sweep or of a run of claims: one HTML file that opens from disk."""
    from normlab.reports import report as write

    page = write(run, out or folder_of(run) / "report.html")
    output.machine({"report": str(page), "bytes": page.stat().st_size})
    output.result(f"Report: {page}")
