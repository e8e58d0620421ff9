"""Write docs/zoo.md from the registries and the kept measurements of docs/zoo.csv.

python tools/make_zoo_docs.py              # the page, from what was kept
python tools/make_zoo_docs.py --measure    # measure again first; a few minutes
"""

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

import normlab as nl
from normlab.files import write_whole
from normlab.spec.zoo import KINDS, Entry, entries

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / "docs/zoo.csv"
PAGE: Final = ROOT / "docs/zoo.md"

DEPTHS: Final = (4, 16, 64)
SEEDS: Final = (0, 1)
WIDTH: Final = 64

#: Recipes that were made for another placement than Pre-LN are measured there.
PARTNERS: Final = {"deepnorm": "deepnorm", "magneto": "sub-ln", "t-fixup": "none", "fixup": "none"}

FOLDERS: Final = {"placement": "placements", "norm": "norms", "init": "inits"}
TITLES: Final = {
    "placement": "Placements",
    "norm": "Norms",
    "init": "Initialisations",
    "activation": "Activations",
}
HEADER: Final = ("kind", "name", "depth", "stream", "gradient")

#: (kind, name, depth) -> growth of the stream, growth of the gradient.
Measured = Mapping[tuple[str, str, int], tuple[float, float]]

INTRODUCTION: Final = f"""\
# The zoo

What `ModelSpec` can be made of, by name. N is the model's norm, F a sub-layer (attention or MLP), x the residual
stream, L the number of blocks, d the width. `normlab zoo` lists the same, with what a plugin of yours adds.

**Growth** is measured at initialisation: a decoder of width {WIDTH} with 4 heads on two sequences of 32 random tokens,
cross-entropy, in float64, geometric mean over {len(SEEDS)} seeds, with `placement="pre"`, `norm="layernorm"`,
`init="xavier"` and `activation="gelu"` except for the row's own entry (and the placement that an initialisation was
made for, where one is named). *Stream*: mean square of the stream after the last block, relative to that before the
first. *Gradient*: norm of the loss's gradient with respect to the stream before the first block, relative to that
after the last; nan: not finite.

This page is written by `tools/make_zoo_docs.py`.
"""


def spec_of(entry: Entry, depth: int) -> nl.ModelSpec:
    """Return the model in which ``entry`` is measured."""
    partner = {"placement": PARTNERS[entry.name]} if entry.kind == "init" and entry.name in PARTNERS else {}
    return nl.ModelSpec(**{"depth": depth, "width": WIDTH, **partner, entry.kind: entry.name})


# The defaults of all kinds are one model.
@cache
def growth(spec: nl.ModelSpec, seeds: tuple[int, ...] = SEEDS) -> tuple[float, float]:
    """Return how the stream grows from first to last, and the gradient from last to first."""
    logs = []
    for seed in seeds:
        # In float64, since where gradients explode, rounding decides what float32 gives on which processor.
        model = nl.build(spec, seed=seed).double()
        with nl.record(model, sites=("stream", "stream_grad"), quantities=("mean_square", "l2")) as recorder:
            model.loss(*nl.data.random_batch(batch=2, tokens=32, seed=10_000 + seed)).backward()
        table = recorder.table()
        ends = table[table["sublayer"].isin(["embed", "mlp"]) & table["layer"].isin([0, spec.depth])]
        first, last = (ends[ends["layer"] == layer].set_index("quantity")["value"] for layer in (0, spec.depth))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = [last["mean_square"] / first["mean_square"], first["l2"] / last["l2"]]
            logs.append(np.log(np.asarray(ratios, dtype=float)))
    stream, gradient = np.exp(np.mean(logs, axis=0))
    return float(stream), float(gradient)


def measure() -> dict[tuple[str, str, int], tuple[float, float]]:
    """Measure every entry at every depth."""
    return {(entry.kind, entry.name, depth): growth(spec_of(entry, depth)) for entry in entries() for depth in DEPTHS}


def read_kept(path: Path = KEPT) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Return the kept measurements."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["kind"], row["name"], int(row["depth"])): (float(row["stream"]), float(row["gradient"]))
            for row in csv.DictReader(file)
        }


def kept_text(measured: Measured) -> str:
    """Return what :func:`read_kept` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for (kind, name, depth), (stream, gradient) in measured.items():
        writer.writerow((kind, name, depth, f"{stream:.6g}", f"{gradient:.6g}"))
    return text.getvalue()


def page(listed: Sequence[Entry], kept: Measured) -> str:
    """Return the text of docs/zoo.md: a function of its arguments alone."""
    sections = [_section(kind, [entry for entry in listed if entry.kind == kind], kept) for kind in KINDS]
    return "\n".join([INTRODUCTION, *sections])


def _section(kind: str, listed: Sequence[Entry], kept: Measured) -> str:
    depths = ", ".join(str(depth) for depth in DEPTHS)
    lines = [
        f"## {TITLES[kind]}",
        "",
        f"| {kind} | equation | options | stream, L = {depths} | gradient, L = {depths} | source |",
        "|---|---|---|---|---|---|",
        *(_row(entry, kept) for entry in listed),
        "",
    ]
    return "\n".join(lines)


def _row(entry: Entry, kept: Measured) -> str:
    found = [kept[entry.kind, entry.name, depth] for depth in DEPTHS]
    stream, gradient = (", ".join(_number(values[index]) for values in found) for index in (0, 1))
    options = ", ".join(f"`{name}={value!r}`" for name, value in entry.options)
    partner = f"; measured with `{PARTNERS[entry.name]}`" if entry.kind == "init" and entry.name in PARTNERS else ""
    cells = (_link(entry), entry.equation, options, stream, gradient, entry.source + partner)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _link(entry: Entry) -> str:
    if entry.kind == "activation":
        return f"[`{entry.name}`](../normlab/activations.py)"
    return f"[`{entry.name}`](../normlab/{FOLDERS[entry.kind]}/{entry.name.replace('-', '_')}.py)"


def _number(value: float) -> str:
    return f"{value:.2e}" if value >= 1e4 or value < 1e-3 else f"{value:.3g}"


def main() -> None:
    """Write the page, and before that the kept table where it was asked for."""
    parser = argparse.ArgumentParser(description="Write docs/zoo.md.")
    parser.add_argument("--measure", action="store_true", help="measure again, and keep that in docs/zoo.csv")
    if parser.parse_args().measure:
        write_whole(KEPT, kept_text(measure()))
    write_whole(PAGE, page(list(entries()), read_kept()))


if __name__ == "__main__":
    main()
