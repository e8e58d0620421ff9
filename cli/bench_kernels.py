"""``normlab bench kernels``: achieved bandwidth of the CUDA kernels."""

from pathlib import Path

import click

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.output import Output, write_json


@click.command("kernels", cls=Command)
@click.option("--rounds", type=click.IntRange(min=3), default=30, help="Calls of each; the median counts.")
@click.option("--compiled/--no-compiled", default=True, help="Whether torch.compile takes part.")
@common(out="Also write what --json prints to this file.")
def bench_kernels(
    output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], rounds: int, compiled: bool
) -> None:
    """Time RMSNorm's kernels against a copy on the device, torch, and Liger-Kernel and quack where installed.

    Needs a CUDA device and CuPy.
    """
    from rich import box
    from rich.table import Table

    from normlab.benchmarks.kernels import bench_kernels

    found = bench_kernels(rounds=rounds, compiled=compiled)
    if out is not None:
        write_json(out, found)
    output.machine(found)
    headings = ("operation", "way", "rows", "d", "dtype", "µs", "GB/s", "of copy")
    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for each in found["timings"]:
        words = [str(each[name]) for name in ("operation", "way", "rows", "d", "dtype")]
        numbers = (each["seconds"] * 1e6, each["bandwidth"] / 1e9)
        table.add_row(*words, *(f"{number:.1f}" for number in numbers), f"{each['share_of_copy']:.0%}")
    output.show(table)
    output.result("\n".join(found["slower"]) or "No other way is faster at any size.")
