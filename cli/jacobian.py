"""``normlab jacobian``: how much a model's parts stretch changes of their input."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.jacobian_tables import layer_table, part_table, records, report
from normlab.cli.output import Output, write_whole
from normlab.cli.spec_options import axes, spec_options

if TYPE_CHECKING:
    import pandas as pd

    from normlab.jacobian import Examination
    from normlab.spec import ModelSpec

#: What is measured where nothing was said: small enough for seconds.
_DEFAULTS = {"depth": 8, "width": 64}
_QUANTITIES = ("apjn", "singular_value", "lyapunov")


@click.command(cls=Command, short_help="Measure Jacobians of blocks, norms or whole models.")
@spec_options
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="PART",
    help='all, "block 3", "blocks 2-5", "block 3 attn", "block 3 attn branch", "block 3 attn norm" or "final norm". '
    "Repeatable; every block without it.",
)
@click.option(
    "--quantity",
    "quantities",
    type=click.Choice(_QUANTITIES),
    multiple=True,
    help="What to measure of every block; all unless given. Repeatable.",
)
@click.option("--tokens", type=click.IntRange(1), default=16, help="Positions of a sequence, drawn at random.")
@click.option("--batch", type=click.IntRange(1), default=1, help="Sequences.")
@click.option("--seeds", type=click.IntRange(1), default=1, metavar="N", help="Models, each with a batch of its own.")
@click.option("--probes", type=click.IntRange(2), default=8, metavar="N", help="Random vectors of an estimate.")
@click.option("--k", type=click.IntRange(1), default=4, metavar="N", help="Largest singular values.")
@click.option("--full", is_flag=True, help="With --part: all singular values, rank, condition number and volume.")
@click.option("--directions", type=click.IntRange(0), default=0, metavar="N", help="Of the Lyapunov spectrum by QR.")
@common(
    out="A folder for the table and its plots.",
    seed="Seed s of the first model: models are s, s+1, ... and their batches 10000 + s, ...",
)
def jacobian(output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], **given: Any) -> None:
    """Measure how much changes grow from layer to layer, or the Jacobian of one part, in float64.

    \b
    normlab jacobian --placements pre,post --depth 12 --width 64 --seeds 3 --out runs/jacobian
    normlab jacobian --depth 4 --width 32 --part "block 2" --part "block 2 attn norm" --full
    """
    from normlab.sweeps import grid

    chosen = {name: given.pop(name) for name in ("parts", "quantities", "tokens", "batch", "seeds", "probes")}
    chosen |= {name: given.pop(name) for name in ("k", "full", "directions")}
    missing = {name: (value,) for name, value in _DEFAULTS.items() if not given[name] and not given[f"{name}s"]}
    specs = grid(**axes({**given, **missing}))
    if any(spec.dropout for spec in specs):
        raise click.UsageError("a model with dropout has another Jacobian each time: leave --dropout out")
    seeds = range(seed, seed + chosen["seeds"])
    (_parts if chosen["parts"] else _depths)(output, out, specs, seeds, chosen)


def _depths(
    output: Output, out: Path | None, specs: Sequence["ModelSpec"], seeds: range, chosen: dict[str, Any]
) -> None:
    from normlab.table import concat

    measured, predicted = [], []
    for spec in specs:
        own = [_measured(spec, seed, chosen) for seed in seeds]
        theory = _predicted(spec, chosen)
        measured += own
        predicted.append(theory)
        output.note(f"{spec.placement}, {spec.norm}, depth {spec.depth}, width {spec.width}:")
        output.show(layer_table(concat(own), theory))
        for reason in sorted({str(one) for one in theory["status"] if str(one).startswith("no theory")}):
            output.note(reason)
    found, theory = concat(measured), concat(predicted)
    output.machine({"rows": list(records(found)), "theory": list(records(theory))})
    if out is not None:
        _write(output, out, found, theory)


def _measured(spec: "ModelSpec", seed: int, chosen: dict[str, Any]) -> "pd.DataFrame":
    from normlab.jacobian import measure
    from normlab.models import build
    from normlab.norms import frozen_statistics

    data, cell = _batch(spec, seed, chosen)
    quantities = chosen["quantities"] or _QUANTITIES
    counts = {name: chosen[name] for name in ("probes", "k", "directions")}
    # Norms over a batch take its statistics, as in training, and keep none.
    with frozen_statistics():
        return measure(build(spec, seed=seed), data, quantities=quantities, seed=seed, cell=cell, **counts)


def _batch(spec: "ModelSpec", seed: int, chosen: dict[str, Any]) -> tuple[Any, dict[str, object]]:
    from normlab.data import Random

    source = Random(chosen["batch"], chosen["tokens"], spec.vocab)
    seeds = {"model_seed": seed, "data_seed": 10_000 + seed}
    return source.draw(10_000 + seed), spec.columns() | source.columns() | seeds


def _predicted(spec: "ModelSpec", chosen: dict[str, Any]) -> "pd.DataFrame":
    from normlab.theory import predict

    table = predict(spec, chosen["batch"], chosen["tokens"])
    none = table["status"].str.startswith("no theory") & (table["quantity"] == "")
    return table[table["quantity"].isin(_QUANTITIES) | none].reset_index(drop=True)


def _parts(
    output: Output, out: Path | None, specs: Sequence["ModelSpec"], seeds: range, chosen: dict[str, Any]
) -> None:
    from normlab.table import concat, from_rows

    tables, reports = [], []
    for spec in specs:
        for seed in seeds:
            output.note(f"{spec.placement}, {spec.norm}, depth {spec.depth}, width {spec.width}, seed {seed}:")
            found, cell = _examined(spec, seed, chosen), _batch(spec, seed, chosen)[1]
            output.show(part_table(found))
            tables.append(from_rows([row for one in found for row in one.rows()], cell))
            reports += [{"spec": spec.to_dict(), "model_seed": seed, **report(one)} for one in found]
    output.machine({"parts": reports})
    if out is not None:
        _write(output, out, concat(tables))
        _images(output, out, specs[0], seeds[0], chosen)


def _examined(spec: "ModelSpec", seed: int, chosen: dict[str, Any]) -> list["Examination"]:
    from normlab.jacobian import examine, parts
    from normlab.models import build
    from normlab.norms import frozen_statistics

    k = None if chosen["full"] else chosen["k"]
    with frozen_statistics():
        named = parts(build(spec, seed=seed), _batch(spec, seed, chosen)[0])
        return [examine(named.named(text), probes=chosen["probes"], k=k, seed=seed) for text in chosen["parts"]]


def _write(output: Output, out: Path, found: "pd.DataFrame", theory: "pd.DataFrame | None" = None) -> None:
    from normlab.plots import skipped, write_plots
    from normlab.table import concat, to_csv_bytes

    write_whole(out / "jacobian.csv.gz", to_csv_bytes(found if theory is None else concat([found, theory])))
    names = [name for name in ("singular_values", "layer_exponents") if name not in skipped(found)]
    for path in [out / "jacobian.csv.gz", *write_plots(found, out / "plots", names=names, theory=theory)]:
        output.note(f"{path}")


def _images(output: Output, out: Path, spec: "ModelSpec", seed: int, chosen: dict[str, Any]) -> None:
    """Draw the Jacobian of each norm that was named, at the last token of the first sequence."""
    from normlab.jacobian import dense, parts
    from normlab.models import build
    from normlab.norms import frozen_statistics
    from normlab.plots import norm_jacobian, save

    with frozen_statistics():
        named = parts(build(spec, seed=seed), _batch(spec, seed, chosen)[0])
        found = [part for text in chosen["parts"] if (part := named.named(text)).name.endswith("norm")]
        tokens = [part.token(chosen["tokens"] - 1) for part in found]
        matrices = [dense(token, token.point) for token in tokens]
    (out / "plots").mkdir(exist_ok=True)
    for part, matrix in zip(found, matrices, strict=True):
        figure = norm_jacobian(matrix, title=f"{spec.norm}, {part.name}").get_figure(root=True)
        assert figure is not None
        for suffix in ("svg", "png"):
            path = out / "plots" / f"{part.name.replace(' ', '_')}.{suffix}"
            output.note(f"{save(figure, path)}")
