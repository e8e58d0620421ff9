"""``normlab jacobian``: how much a model's parts stretch changes of their input."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.jacobian_cases import Case, Source, of_name, of_specs, theory_of
from normlab.cli.jacobian_files import write_images, write_table
from normlab.cli.jacobian_tables import (
    layer_table,
    layer_words,
    lyapunov_words,
    part_table,
    part_words,
    records,
    report,
)
from normlab.cli.output import Output, make_folder
from normlab.cli.spec_options import FIELDS, axes, spec_options
from normlab.cli.text_options import text_option

if TYPE_CHECKING:
    import pandas as pd

    from normlab.jacobian import Examination

#: What is measured where nothing was said: small enough for seconds.
_DEFAULTS: Final = {"depth": 8, "width": 64}
_QUANTITIES: Final = ("apjn", "singular_value", "lyapunov")
#: What options are of: without one of these they are of no effect.
_COUNTS: Final = {
    "k": ("singular_value",),
    "directions": ("lyapunov",),
    "probes": ("apjn", "lyapunov"),
    "law": ("apjn", "lyapunov"),
}


@click.command(cls=Command, short_help="Measure Jacobians of blocks, norms or whole models.")
@click.argument("model", required=False)
@spec_options
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="PART",
    help='all, "block 3", "blocks 2-5", "block 3 attn", "block 3 attn branch", "block 3 attn norm", "final norm" or '
    '"module PATH"; with "token 5" after it one token\'s own block of the matrix. Repeatable; every block without it.',
)
@click.option(
    "--quantity",
    "quantities",
    type=click.Choice(_QUANTITIES),
    multiple=True,
    help="What to measure of every block; all unless given. Repeatable.",
)
@text_option("A UTF-8 text to run on; otherwise random tokens, and for MODEL the documentation of Python.")
@click.option("--tokens", type=click.IntRange(1), default=16, metavar="N", help="Positions of a sequence.")
@click.option("--batch", type=click.IntRange(1), default=1, metavar="N", help="Sequences.")
@click.option("--stack", type=click.Choice(("decoder", "encoder")), help="Which, of a model that has both.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, metavar="N", help="Models, each with a batch; of MODEL batches."
)
@click.option("--probes", type=click.IntRange(2), default=8, metavar="N", help="Random vectors of an estimate.")
@click.option("--law", type=click.Choice(("rademacher", "gaussian", "sphere")), default="rademacher", help="Their law.")
@click.option("--k", type=click.IntRange(1), default=4, metavar="N", help="Largest singular values.")
@click.option("--full", is_flag=True, help="With --part: all singular values, rank, condition number and volume.")
@click.option("--directions", type=click.IntRange(0), default=0, metavar="N", help="Of the Lyapunov spectrum by QR.")
@common(
    out="A folder for the table and its plots.",
    seed="Seed s of the first model: models are s, s+1, ... and their batches 10000 + s, ...",
)
def jacobian(
    output: Output, model: str | None, out: Path | None, seed: int, plugin: tuple[str, ...], **given: Any
) -> None:
    """Measure how much changes grow from layer to layer, or the Jacobian of one part, in float64.

    Without MODEL they are models of the zoo. MODEL is a folder or file that transformers loads (.gguf too),
    package.module:function, which returns a module or a pair of a module and a tokenizer, or a saved spec (.json).

    \b
    normlab jacobian --placements pre,post --depth 12 --width 64 --seeds 3 --out runs/jacobian
    normlab jacobian --depth 4 --width 32 --part "block 2" --part "block 2 attn norm" --full
    normlab jacobian ./my-checkpoint --text book.txt --out runs/jacobian
    """
    _check(model, given)
    if out is not None:
        make_folder(output, out, "jacobian.csv.gz")
    seeds, stack = range(seed, seed + given["seeds"]), given["stack"] or ""
    source = Source(given["batch"], given["tokens"], given["text"], stack)
    if model is not None:
        found = iter([of_name(model, seeds, source)])
    else:
        found = _of_zoo(given, seeds, source)
    (_parts if given["parts"] else _depths)(output, out, found, given, stack)


def _check(model: str | None, given: Mapping[str, Any]) -> None:
    """Refuse options that would be of no effect."""
    source = click.get_current_context().get_parameter_source
    typed = {name for name in given if source(name) == ParameterSource.COMMANDLINE}
    if model is not None:
        for field in FIELDS:
            if {field.name, field.plural} & typed:
                raise click.UsageError(f"{field.option} is of models of the zoo: leave it out, or MODEL")
    if given["parts"]:
        for name, option in (("quantities", "--quantity"), ("directions", "--directions")):
            if name in typed:
                raise click.UsageError(f"{option} is of every block: leave it out, or --part")
        if given["full"] and "k" in typed:
            raise click.UsageError("--full gives all singular values and --k some: leave one of them out")
        return
    if given["full"]:
        raise click.UsageError("--full is of one part: name it, as with --part 'block 1'")
    for name, needs in _COUNTS.items():
        if name in typed and given["quantities"] and not set(needs) & set(given["quantities"]):
            raise click.UsageError(f"--{name} is of {' and '.join(needs)}: leave it out, or ask for that --quantity")


def _of_zoo(given: Mapping[str, Any], seeds: range, source: Source) -> Iterator[list[Case]]:
    from normlab.sweeps import grid

    fields = {name: given[name] for field in FIELDS for name in (field.name, field.plural) if name}
    missing = {name: (value,) for name, value in _DEFAULTS.items() if not given[name] and not given[f"{name}s"]}
    specs = grid(**axes({**fields, **missing}))
    if any(spec.dropout for spec in specs):
        raise click.UsageError("a model with dropout has another Jacobian each time: leave --dropout out")
    return of_specs(specs, seeds, source)


def _depths(
    output: Output, out: Path | None, found: Iterator[list[Case]], given: Mapping[str, Any], stack: str
) -> None:
    from normlab.jacobian import measure
    from normlab.norms import frozen_statistics
    from normlab.table import concat

    measured: list[pd.DataFrame] = []
    predicted: list[pd.DataFrame] = []
    counts = {name: given[name] for name in ("probes", "law", "k", "directions")}
    for cases in found:
        own = []
        for case in cases:
            # Norms over a batch take its statistics, as in training, and keep none.
            with frozen_statistics():
                parts = case.parts(stack)
                quantities = given["quantities"] or _QUANTITIES
                own.append(measure(parts, quantities=quantities, seed=case.seed, cell=case.cell, **counts))
        theory = theory_of(cases)
        measured += own
        predicted.append(theory)
        output.result(f"{cases[0].name}:")
        output.show(layer_table(concat(own), theory))
        if spectrum := lyapunov_words(concat(own)):
            output.result(spectrum)
        for reason in sorted({str(one) for one in theory["status"] if str(one).startswith("no theory")}):
            output.note(reason)
    table, theory = concat(measured), concat(predicted)
    output.show(layer_words(table, given["probes"]))
    output.machine({"rows": list(records(table)), "theory": list(records(theory))})
    if out is not None:
        write_table(output, out, table, theory)


def _parts(output: Output, out: Path | None, found: Iterator[list[Case]], given: Mapping[str, Any], stack: str) -> None:
    from normlab.table import concat, from_rows

    tables, examined, reports, drawn = [], [], [], None
    for cases in found:
        for case in cases:
            seen = _examined(case, given, stack)
            output.result(f"{case.name}, seed {case.seed}:")
            output.show(part_table(seen, 4 if given["full"] else given["k"]))
            examined += seen
            tables.append(from_rows([row for one in seen for row in one.rows()], case.cell))
            spec = {"model": case.name} if case.spec is None else {"spec": case.spec.to_dict()}
            reports += [{**spec, "model_seed": case.seed, **report(one)} for one in seen]
            drawn = drawn or case
    output.show(part_words(examined, given["probes"]))
    output.machine({"parts": reports})
    if out is not None and drawn is not None:
        write_table(output, out, concat(tables))
        write_images(output, out, drawn, given["parts"], stack)
        if len(reports) > len(given["parts"]):
            output.note("Images are of the first model alone.")


def _examined(case: Case, given: Mapping[str, Any], stack: str) -> list["Examination"]:
    from normlab.jacobian import examine
    from normlab.norms import frozen_statistics

    counts = {"probes": given["probes"], "law": given["law"], "k": None if given["full"] else given["k"]}
    with frozen_statistics():
        named = case.parts(stack)
        return [examine(named.named(text), seed=case.seed, **counts) for text in given["parts"]]
