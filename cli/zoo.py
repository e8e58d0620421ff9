"""``normlab zoo``: what models can be made of."""

from pathlib import Path

import click

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.output import Output, write_json


@click.command(cls=Command, short_help="List placements, norms, inits and activations.")
@common(out="Also write what --json prints to this file.", options=False)
def zoo(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...]) -> None:
    """List every placement, norm, initialisation, activation and preset, with equations and options."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from normlab.presets import PRESETS
    from normlab.spec.zoo import KINDS, entries

    found = list(entries())
    presets = [
        {"name": preset.name, "model": preset.model, "source": preset.source, "spec": preset.spec.to_dict()}
        for _, preset in PRESETS.items()
    ]
    lists = {f"{kind}s": [entry.to_json() for entry in found if entry.kind == kind] for kind in KINDS}
    if out is not None:
        write_json(out, {**lists, "presets": presets})
    output.machine({**lists, "presets": presets})
    for kind in KINDS:
        table = Table(kind, "equation", "options", box=box.SIMPLE_HEAD, pad_edge=False)
        for entry in found:
            if entry.kind == kind:
                options = ", ".join(f"{name}={value}" for name, value in entry.options)
                table.add_row(entry.name, escape(entry.equation), escape(options))
        output.show(table)
    table = Table("preset", "model", box=box.SIMPLE_HEAD, pad_edge=False)
    for preset in presets:
        table.add_row(str(preset["name"]), escape(str(preset["model"])))
    output.show(table)
