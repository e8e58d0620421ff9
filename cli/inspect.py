"""``normlab inspect``: what a model is made of, and what it does to the scale of its activations."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from normlab.cli.common import common
from normlab.cli.failures import Command, Failure
from normlab.cli.inspect_table import layer_table
from normlab.cli.output import Output, counted, write_json, write_whole

if TYPE_CHECKING:
    from normlab.inspection import Condition, Inspection, Outcome


@click.command(cls=Command, short_help="Say what a model does to the scale of its activations.")
@click.argument("model", required=False)
@click.option(
    "--architecture",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="In place of MODEL: a config.json of transformers, or its folder. No weights are read, and none are made.",
)
@click.option(
    "--text",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A UTF-8 text to run on; the documentation of Python's standard library unless given.",
)
@click.option("--batch", type=click.IntRange(1), default=2, metavar="N", help="Sequences.")
@click.option("--tokens", type=click.IntRange(2), default=128, metavar="N", help="Tokens in each.")
@click.option(
    "--dtype",
    type=click.Choice(("float32", "float64", "bfloat16", "float16")),
    default="float32",
    help="Of the weights.",
)
@click.option("--no-grad", is_flag=True, help="Run forward only.")
@click.option(
    "--assert",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="End with exit code 1 unless this holds, as 'stream.median_rms@last < 100'. Repeatable.",
)
@common(
    out="A folder for report.html, results.csv.gz and inspection.json; with --architecture the JSON file.",
    seed="Seed of the places of the windows in the text, and of the weights of a saved spec.",
)
def inspect(
    output: Output,
    model: str | None,
    architecture: Path | None,
    text: Path | None,
    batch: int,
    tokens: int,
    dtype: str,
    no_grad: bool,
    conditions: tuple[str, ...],
    out: Path | None,
    seed: int,
    plugin: tuple[str, ...],
) -> None:
    """Say what MODEL does to the scale of its activations and gradients, on a batch of text.

    MODEL is a folder or file that transformers loads (.gguf too), package.module:function, which returns a module or a
    pair of a module and a tokenizer, or a saved spec (.json).

    \b
    normlab inspect ./my-checkpoint --text book.txt --out runs/look
    normlab inspect ./my-checkpoint --assert 'stream.median_rms@last < 100' --assert 'logits.max_abs < 60'
    normlab inspect --architecture config.json

    \b
    A condition is WHAT.QUANTITY[:SUBLAYER][@BLOCKS] OP NUMBER, or loss OP NUMBER:
      WHAT is a site (stream, update, input, logits, ...) or a parameter's role (down, q, ...),
      BLOCKS is all (default), first, last, 3 or 2-5, and OP one of < <= > >= == !=.
    """
    if (model is None) == (architecture is None):
        raise click.UsageError("give either MODEL or --architecture PATH")
    if architecture is not None:
        _architecture(output, architecture, out)
        return
    import torch

    from normlab.inspection import check
    from normlab.inspection import inspect as look

    parsed = _parsed(conditions)
    found = look(
        str(model),
        text=text,
        batch=batch,
        tokens=tokens,
        seed=seed,
        dtype=getattr(torch, dtype),
        backward=not no_grad,
    )
    outcomes = [check(condition, found.table) for condition in parsed]
    files = {} if out is None else _write(out, found)
    output.machine({**found.to_dict(), "assertions": [_outcome(one) for one in outcomes], "files": files})
    output.result(str(found))
    output.show(layer_table(found.layers))
    for one in outcomes:
        output.result(one.says)
    output.result(f"Report: {files['report']}" if files else "No report is written without --out.")
    if failed := [one for one in outcomes if not one.holds]:
        raise Failure(f"{len(failed)} of {counted(len(outcomes), 'assertion')} failed: {failed[0].says}")


def _parsed(conditions: tuple[str, ...]) -> "list[Condition]":
    from normlab.errors import DataError
    from normlab.inspection import parse

    try:
        return [parse(condition) for condition in conditions]
    except DataError as error:
        raise click.BadParameter(str(error), param_hint="--assert") from error


def _outcome(one: "Outcome") -> dict[str, object]:
    return {"condition": one.condition.text, "holds": one.holds, "says": one.says}


def _write(folder: Path, found: "Inspection") -> dict[str, str]:
    """Write the report, the table and the findings, each whole or not at all."""
    from normlab.reports import report
    from normlab.table import to_csv_bytes

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "inspection.json", found.to_dict())
    table = folder / "results.csv.gz"
    write_whole(table, to_csv_bytes(found.table))
    page = report(table, folder / "report.html", inspection=found)
    return {"report": str(page), "table": str(table), "inspection": str(folder / "inspection.json")}


def _architecture(output: Output, path: Path, out: Path | None) -> None:
    from normlab.recording.discovery import architecture_of

    found = architecture_of(path)
    if out is not None:
        write_json(out, found.to_dict())
    output.machine(found.to_dict())
    output.result(str(found))
