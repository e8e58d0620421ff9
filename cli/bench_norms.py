"""``normlab bench norms``: what LayerNorm and RMSNorm cost, every way to compute them."""

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.output import Output, write_json

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from normlab.benchmarks import NormBench

_WAYS = ("numpy", "eager", "compiled", "fused", "kernels")
_PASSES = ("forward", "forward+backward")


def _sizes(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[tuple[int, int], ...] | None:
    """Read ``32x256,32x1024``."""
    if given is None:
        return None
    found = [re.fullmatch(r"\s*(\d+)x(\d+)\s*", part) for part in given.split(",")]
    if not all(match and int(match[1]) and int(match[2]) for match in found):
        raise click.BadParameter(f"{given!r}: give rows and features as in 32x256,2048x1024", ctx, param)
    return tuple((int(match[1]), int(match[2])) for match in found if match)


@click.command("norms", cls=Command)
@click.option("--sizes", callback=_sizes, metavar="RxD,...", help="Rows and features, such as 32x256,2048x1024.")
@click.option("--way", "ways", multiple=True, type=click.Choice(_WAYS), help="Only this way. Repeatable.")
@click.option("--pass", "passes", multiple=True, type=click.Choice(_PASSES), help="Only this pass. Repeatable.")
@click.option("--rounds", type=click.IntRange(min=25), default=40, help="Samples of each, taken in turns.")
@click.option("--threads", type=click.IntRange(min=1), default=1, help="Threads of torch.")
@click.option("--dtype", type=click.Choice(("float32", "bfloat16", "float16")), default="float32")
@click.option("--device", default="cpu", metavar="NAME", help="torch's name of the device, such as cuda.")
@common(out="Also write what --json prints to this file.", seed="Seed of the data and of the order of the runs.")
def bench_norms(
    output: Output,
    out: Path | None,
    seed: int,
    plugin: tuple[str, ...],
    sizes: tuple[tuple[int, int], ...] | None,
    ways: tuple[str, ...],
    passes: tuple[str, ...],
    rounds: int,
    threads: int,
    dtype: str,
    device: str,
) -> None:
    """Time LayerNorm and RMSNorm: NumPy, torch eager, compiled and fused, CUDA kernels; forward and backward.

    All of a size run in turns. A ratio is one of median times, with a bootstrap interval over the rounds. Compiling
    takes some ten seconds a size: leave it out with --way numpy --way eager --way fused.
    """
    from normlab.benchmarks import bench_norms as measure
    from normlab.benchmarks.norms import SIZES

    found = measure(
        sizes or SIZES,
        ways=ways or _WAYS,
        passes=passes or _PASSES,
        rounds=rounds,
        threads=threads,
        dtype=dtype,
        device=device,
        seed=seed,
    )
    content = {"machine": _machine(), **found.to_json()}
    if out is not None:
        write_json(out, content)
    output.machine(content)
    output.result(_about(found))
    output.show(_times(found.times))
    output.show(_ratios(found.ratios))
    for name, why in found.missing.items():
        output.note(f"{name} was left out: {why}")


def _machine() -> dict[str, str]:
    return {"system": platform.platform(), "processor": platform.processor() or platform.machine()}


def _about(found: "NormBench") -> str:
    told = found.settings
    return (
        f"{told['dtype']} on {told['device']}, {told['threads']} {'thread' if told['threads'] == 1 else 'threads'}, "
        f"{told['rounds']} rounds; a copy beyond the caches moves {told['copy_gb_per_s']:.1f} GB/s"
    )


def _times(times: "pd.DataFrame") -> "Table":
    from rich import box
    from rich.table import Table

    headings = ("rows × d", "pass", "norm", "way", "µs", "kB moved", "GB/s", "of a copy", "of the machine")
    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in times.to_dict("records"):
        table.add_row(
            f"{row['rows']} × {row['width']}",
            row["pass"],
            row["norm"],
            row["way"],
            f"{1e6 * row['median_seconds']:.2f}",
            f"{row['bytes'] / 1e3:.1f}",
            f"{row['gb_per_s']:.2f}",
            f"{row['share_of_copy']:.1%}",
            f"{row['share_of_machine']:.1%}",
        )
    return table


def _ratios(ratios: "pd.DataFrame") -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table("rows × d", "pass", "time of", "over", "ratio [95 % interval]", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in ratios.to_dict("records"):
        table.add_row(
            f"{row['rows']} × {row['width']}",
            row["pass"],
            row["first"].replace("/", ", "),
            row["second"].replace("/", ", "),
            f"{row['ratio']:.2f} " + escape(f"[{row['low']:.2f}, {row['high']:.2f}]"),
        )
    return table
