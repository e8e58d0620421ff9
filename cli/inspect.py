"""``normlab inspect``: what a model is made of, and what it does to the scale of its activations."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from normlab.cli.common import common
from normlab.cli.failures import Command, Failure
from normlab.cli.inspect_table import layer_table
from normlab.cli.output import Output, counted, make_folder, write_json
from normlab.cli.text_options import DTYPES, text_option, windows
from normlab.files import write_whole

if TYPE_CHECKING:
    from normlab.inspection import Condition, Inspection, Outcome

#: Options of a model that runs, by parameter: an architecture is read from a file, and nothing runs.
_OF_RUNS: Final = {
    "text": "--text",
    "batch": "--batch",
    "tokens": "--tokens",
    "dtype": "--dtype",
    "no_grad": "--no-grad",
    "conditions": "--assert",
    "seed": "--seed",
}


@click.command(cls=Command, short_help="Say what a model does to the scale of its activations.")
@click.argument("model", required=False)
@click.option(
    "--architecture",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="In place of MODEL: a config.json of transformers, or its folder. No weights are read, and none are made.",
)
@text_option("A UTF-8 text to run on; the documentation of Python's standard library unless given.")
@windows
@click.option(
    "--dtype",
    type=DTYPES,
    help="Of the weights; float32 unless given, and for package.module:function what its module has.",
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
@click.pass_context
def inspect(
    ctx: click.Context,
    /,
    output: Output,
    model: str | None,
    architecture: Path | None,
    text: Path | None,
    batch: int,
    tokens: int,
    dtype: str | None,
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
    A condition is WHAT.QUANTITY[:SUBLAYER][@[STACK:]BLOCKS] OP NUMBER, or loss OP NUMBER:
      WHAT is a site (stream, update, input, logits, ...) or a parameter's role (down, q, ...),
      BLOCKS is all (default), first, last, 3 or 2-5, and OP one of < <= > >= == !=.
      Of a model with two stacks STACK says which: stream.median_rms@decoder:last.
    Exit code 1: one fails, or speaks of what the model does not have; the report is written all the same.
    """
    if (model is None) == (architecture is None):
        raise click.UsageError("give either MODEL or --architecture PATH")
    if architecture is not None:
        _refuse_options(ctx)
        _architecture(output, architecture, out)
        return
    from normlab.inspection import inspect as look
    from normlab.inspection.inspection import columns_say

    parsed = _parsed(conditions, backward=not no_grad)
    if out is not None:
        make_folder(output, out, "inspection.json")
    found = look(
        str(model),
        text=text,
        batch=batch,
        tokens=tokens,
        seed=seed,
        dtype=dtype,
        backward=not no_grad,
    ).meeting(parsed)
    files = {} if out is None else _write(out, found)
    output.machine({**found.to_dict(), "files": files})
    output.result(f"{found.says}\n")
    if len(found.layers.columns) > 3:  # beside stack, layer and sub-layer
        output.result(f"{layer_table(found.layers, output.width)}\n\n{columns_say(found.layers.columns)}\n")
    output.result(f"{found.thresholds}\n")
    for one in found.outcomes:
        output.result(one.says)
    output.result(f"Report: {files['report']}" if files else "No report is written without --out.")
    _judge(found.outcomes)


def _refuse_options(ctx: click.Context) -> None:
    """Refuse options that would be passed over: a check that checks nothing must not succeed."""
    given = [
        option
        for name, option in _OF_RUNS.items()
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        or (name == "conditions" and ctx.params[name])
    ]
    if given:
        options = f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'}"
        raise click.UsageError(
            f"{options} for a model that runs, and --architecture runs none: give MODEL in its place"
        )


def _parsed(conditions: tuple[str, ...], *, backward: bool) -> "list[Condition]":
    """Read the conditions, and refuse what can be refused before anything runs."""
    from normlab.errors import DataError
    from normlab.inspection import check_recorded, parse

    try:
        parsed = [parse(condition) for condition in conditions]
        for condition in parsed:
            check_recorded(condition, backward=backward)
    except DataError as error:
        raise click.BadParameter(str(error), param_hint="--assert") from error
    return parsed


def _judge(outcomes: "Sequence[Outcome]") -> None:
    """End the command with an error unless every condition holds."""
    failed = [one for one in outcomes if one.holds is False]
    unknown = [one for one in outcomes if one.holds is None]
    asked = counted(len(outcomes), "assertion")
    if failed:
        more = f", and {len(unknown)} could not be checked" if unknown else ""
        raise Failure(f"{len(failed)} of {asked} failed{more}: {failed[0].says}")
    if unknown:
        raise Failure(f"{len(unknown)} of {asked} could not be checked: {unknown[0].says}")


def _write(folder: Path, found: "Inspection") -> dict[str, str]:
    """Write the report, the table and what was said, each whole or not at all."""
    from normlab.reports import report
    from normlab.table import to_csv_bytes

    write_json(folder / "inspection.json", found.to_dict())
    table = folder / "results.csv.gz"
    write_whole(table, to_csv_bytes(found.table))
    page = report(table, folder / "report.html", inspection=found)
    return {"report": str(page), "table": str(table), "inspection": str(folder / "inspection.json")}


def _architecture(output: Output, path: Path, out: Path | None) -> None:
    from normlab.recording.discovery import architecture_of

    if out is not None and out.is_dir():
        raise Failure(f"{out} is a folder, and --architecture writes one JSON file: give a file with --out")
    found = architecture_of(path)
    if out is not None:
        write_json(out, found.to_dict())
    output.machine(found.to_dict())
    output.result(str(found))
