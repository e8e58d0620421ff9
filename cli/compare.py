"""``normlab compare``: where two models or runs part."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from normlab.cli.common import common
from normlab.cli.failures import Command, Failure
from normlab.cli.inspect_table import layer_table
from normlab.cli.output import Output, make_folder, write_json
from normlab.cli.text_options import DTYPES, text_option, windows
from normlab.cli.values import share
from normlab.files import write_whole

if TYPE_CHECKING:
    from normlab.inspection import Comparison

#: Options that mean nothing for two runs.
_OF_MODELS = ("text", "dtype_a", "dtype_b", "attention_a", "attention_b", "batch", "tokens", "no_grad")


@click.command(cls=Command, short_help="Say where two models or runs part.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@text_option("A UTF-8 text to run both models on; the documentation of Python's standard library unless given.")
@windows
@click.option("--dtype-a", type=DTYPES, default="float32", help="Of the weights of A.")
@click.option("--dtype-b", type=DTYPES, default="float32", help="Of the weights of B.")
@click.option("--attention-a", metavar="NAME", help="Implementation of A's attention in transformers: eager, sdpa, ...")
@click.option("--attention-b", metavar="NAME", help="Implementation of B's attention.")
@click.option("--no-grad", is_flag=True, help="Run forward only; gradients are not compared.")
@click.option("--where", metavar="QUERY", help="For runs: compare the rows that meet this, as \"placement == 'pre'\".")
@click.option(
    "--tolerance",
    type=share,
    metavar="X",
    help="Models part in the first block that, fed with A's stream, adds more than X of the median token's length in "
    "it (single tokens: of any token's). Unless given 8 roundings of the coarser dtype: 9.5e-7 in float32, 0.063 in "
    "bfloat16. Runs part where their streams' median rms differ by more than the factor 1 + X; X is 0.05 unless given.",
)
@common(
    out="A folder for the plots, results.csv.gz and comparison.json.",
    seed="Seed of the places of the windows in the text, and of the weights of saved specs.",
)
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    output: Output,
    a: str,
    b: str,
    where: str | None,
    tolerance: float | None,
    out: Path | None,
    seed: int,
    plugin: tuple[str, ...],
    **models: Any,
) -> None:
    """Say where A and B part: two models on the same text, or two runs.

    Each is what normlab inspect takes as MODEL, or both are tables or the folders of runs or inspections. The same
    model twice compares dtypes or implementations of attention.

    \b
    normlab compare ./checkpoint ./checkpoint --dtype-b bfloat16
    normlab compare ./step-1000 ./step-2000 --text book.txt --out runs/steps
    normlab compare runs/one runs/two --where "placement == 'pre' and depth == 16"
    """
    from normlab.inspection import run_at
    from normlab.inspection.comparison import comparison_says

    if out is not None:
        make_folder(output, out, "comparison.json")
    runs = [path for path in (run_at(Path(a)), run_at(Path(b))) if path is not None]
    if len(runs) == 1:
        raise Failure(f"{runs[0]} is a run and the other is not: compare two models or two runs")
    if runs:
        found = _runs(ctx, (a, runs[0]), (b, runs[1]), where, tolerance)
    else:
        if where is not None:
            raise click.UsageError("--where chooses rows of runs, and A and B are models")
        found = _models(a, b, seed, tolerance, models)
    files = [] if out is None else _write(out, found)
    output.machine({**found.to_dict(), "files": files})
    output.result(str(found))
    table = layer_table(found.layers, output.width)
    output.result(f"\n{table}\n\n{comparison_says(found.layers.columns)}\n")
    output.result("\n".join(files) if files else "Nothing is written without --out.")


def _runs(
    ctx: click.Context, a: tuple[str, Path], b: tuple[str, Path], where: str | None, tolerance: float | None
) -> "Comparison":
    from normlab.inspection import compare_runs
    from normlab.sweeps import load

    for name in _OF_MODELS:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is for models, and A and B are runs")
    return compare_runs(load(a[1], where), load(b[1], where), a[0], b[0], tolerance)


def _models(a: str, b: str, seed: int, tolerance: float | None, given: dict[str, Any]) -> "Comparison":
    import torch

    from normlab.inspection import Windows, compare_subjects, load_subject

    one, two = (
        load_subject(
            name, seed=seed, dtype=getattr(torch, given[f"dtype_{side}"]), implementation=given[f"attention_{side}"]
        )
        for name, side in ((a, "a"), (b, "b"))
    )
    windows = Windows(given["batch"], given["tokens"], given["text"], seed)
    return compare_subjects(one, two, windows, backward=not given["no_grad"], tolerance=tolerance)


def _write(folder: Path, found: "Comparison") -> list[str]:
    from normlab.plots import write_plots
    from normlab.table import to_csv_bytes

    write_json(folder / "comparison.json", found.to_dict())
    table = folder / "results.csv.gz"
    write_whole(table, to_csv_bytes(found.table))
    plots = write_plots(found.table, folder / "plots", note=f"A: {found.a}\nB: {found.b}")
    return [str(path) for path in (*plots, table, folder / "comparison.json")]
