"""``normlab plot``: the plots of a run as files."""

from pathlib import Path

import click

from normlab.cli.common import common, folder_of
from normlab.cli.failures import Command
from normlab.cli.output import Output


@click.command(cls=Command, short_help="Draw the plots of a run.")
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--plot", "names", multiple=True, metavar="NAME", help="Draw this plot only. Repeatable.")
@click.option("--x", type=click.Choice(("layer", "fraction", "q")), default="layer", help="Along ℓ, ℓ/L or q(ℓ).")
@click.option(
    "--format", "formats", type=click.Choice(("svg", "png")), multiple=True, default=("svg", "png"), help="Repeatable."
)
@common(out="The folder to write to; plots in RUN unless given.")
def plot(
    output: Output,
    out: Path | None,
    seed: int,
    plugin: tuple[str, ...],
    run: Path,
    names: tuple[str, ...],
    x: str,
    formats: tuple[str, ...],
) -> None:
    """Draw what the data of RUN, the folder of a sweep, allow."""
    from normlab.plots import skipped, write_plots
    from normlab.sweeps import load
    from normlab.sweeps.predicted import theory_of

    table = load(run)
    theory = theory_of(table, run)
    folder = out or folder_of(run) / "plots"
    plots = write_plots(table, folder, names=names or None, x=x, theory=theory.table, formats=formats)
    left_out = {} if names else dict(skipped(table))
    output.machine({"plots": [str(path) for path in plots], "skipped": left_out})
    for name, reason in left_out.items():
        output.note(f"{name} is left out: {reason}")
    for sentence in theory.sayings:
        output.note(sentence)
    output.result("\n".join(str(path) for path in plots))
