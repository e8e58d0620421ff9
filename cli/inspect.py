"""``normlab inspect``: what a model is made of."""

from pathlib import Path

import click

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.output import Output, write_json


@click.command(cls=Command, short_help="Say where a model's norms and residual streams are.")
@click.option(
    "--architecture",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    metavar="PATH",
    help="A config.json of transformers, or the folder that it is in. No weights are read, and none are made.",
)
@common(out="Also write what --json prints to this file.")
def inspect(output: Output, architecture: Path, out: Path | None, seed: int, plugin: tuple[str, ...]) -> None:
    """Say where a model's norms and residual streams are, by what it computes and not by what its parts are called.

    Prints the equation of its blocks, the placement, and what kind each norm is.
    """
    from normlab.recording.discovery import architecture_of

    found = architecture_of(architecture)
    if out is not None:
        write_json(out, found.to_dict())
    output.machine(found.to_dict())
    output.result(str(found))
