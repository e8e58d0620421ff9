"""``normlab theory``: what is expected of a model, and of a placement as the depth grows."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from normlab.cli.common import common
from normlab.cli.failures import Command
from normlab.cli.output import Output
from normlab.cli.spec_options import axes, spec_options
from normlab.files import write_whole

if TYPE_CHECKING:
    from normlab.theory import Exponents

#: What is predicted for where nothing was said.
_DEFAULTS = {"depth": 32, "width": 256}


@click.command(cls=Command, short_help="Predict a model's curves, and its laws in depth.")
@spec_options
@click.option("--tokens", type=click.IntRange(1), default=64, help="Positions of a sequence.")
@click.option("--batch", type=click.IntRange(1), default=1, help="Sequences, for the table that --out writes.")
@common(out="A file for the predicted table: .csv or .csv.gz.")
def theory(
    output: Output, out: Path | None, seed: int, plugin: tuple[str, ...], tokens: int, batch: int, **fields: Any
) -> None:
    """Print how stream, gradients and Jacobian of a placement grow with depth, and the recursion that says so.

    \b
    normlab theory --placement pre --placement post
    normlab theory --placement peri --activation swiglu --norm rmsnorm --depth 24 --width 1024
    """
    from normlab.sweeps import grid
    from normlab.table import concat
    from normlab.theory import derivation, exponents, predict

    if out is not None and not out.name.endswith((".csv", ".csv.gz")):
        raise click.BadParameter(f"{out} ends neither in .csv nor in .csv.gz", param_hint="'--out'")
    specs = grid(**axes({**fields, **_given(fields)}))
    found = [exponents(spec, tokens=tokens) for spec in specs]
    pages = [derivation(spec, tokens=tokens, laws=laws) for spec, laws in zip(specs, found, strict=True)]
    output.machine([_machine(laws) for laws in found])
    output.result("\n".join(pages).rstrip())
    if out is not None:
        _write(out, concat(predict(spec, batch, tokens) for spec in specs))


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    missing = (name for name in _DEFAULTS if not fields[name] and not fields[f"{name}s"])
    return {name: (_DEFAULTS[name],) for name in missing}


def _machine(found: "Exponents") -> dict[str, object]:
    laws = {name: dict(_plain(asdict(law))) for name, law in found.laws.items()}
    return {"spec": found.spec.to_dict(), "depths": list(found.depths), "laws": laws}


def _plain(law: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in law.items():
        yield name, None if isinstance(value, float) and not abs(value) < float("inf") else value


def _write(path: Path, table: Any) -> None:
    from normlab.table import to_csv_bytes

    content = to_csv_bytes(table)
    if path.suffix != ".gz":
        import gzip

        content = gzip.decompress(content)
    write_whole(path, content)
