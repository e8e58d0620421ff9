"""``normlab kernels``: the CUDA kernels, as a table and as files."""

from pathlib import Path

import click

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.lazy import LazyGroup
from normlab.cli.output import Output, write_json


@click.group(
    cls=LazyGroup,
    commands_at={"list": "normlab.cli.kernels:list_kernels", "export": "normlab.cli.kernels:export_kernels"},
    short_help="List the CUDA kernels; write them to files.",
)
def kernels() -> None:
    """CUDA C sources of the norms. Neither command needs a GPU, CuPy or a compiler."""


@click.command("list", cls=Command)
@click.option("--arch", default="sm_90", metavar="ARCH", help="Which GPU dispatch is to serve, such as sm_80.")
@common(out="Also write what --json prints to this file.")
def list_kernels(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], arch: str) -> None:
    """Show which kernel serves which row lengths, for many aligned rows."""
    from rich import box
    from rich.table import Table

    from normlab.cupy_kernels import DEVICES, dispatch_table, every_kernel
    from normlab.errors import unknown_name

    if arch not in DEVICES:
        raise unknown_name("architecture", arch, DEVICES)
    found = {"arch": arch, "kernels": len(every_kernel()), "dispatch": list(dispatch_table(DEVICES[arch]))}
    if out is not None:
        write_json(out, found)
    output.machine(found)
    headings = ("operation", "bytes", "from", "to", "kernel", "threads a row", "rows a block", "row held in")
    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for entry in dispatch_table(DEVICES[arch]):
        table.add_row(*(str(value) if key != "to" or value else "" for key, value in entry.items()))
    output.show(table)
    output.result(f"{found['kernels']} kernels in all, for other types, widths and alignments too.")


@click.command("export", cls=Command)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@common(out="Also write what --json prints to this file.", options=False)
def export_kernels(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], folder: Path) -> None:
    """Write every kernel to DIR: a .cu file that stands alone, and a .json that says how it is launched.

    Each compiles with: nvcc -std=c++17 -arch=sm_90
    """
    from normlab.cupy_kernels import export

    written = export(folder)
    found = {"folder": str(folder), "kernels": [path.stem for path in written]}
    if out is not None:
        write_json(out, found)
    output.machine(found)
    output.result(f"{len(written)} kernels are in {folder}.")
