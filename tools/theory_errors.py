"""Measure how far theory is from measured models, and keep the table of errors in docs/theory.md.

    python tools/theory_errors.py measure --seeds 32 --out runs/theory     # long; again: goes on where it stopped
    python tools/theory_errors.py collect --out runs/theory                # docs/theory_measured.csv.gz
    python tools/theory_errors.py table                                    # docs/theory.md, from that file and theory

Each case is run on one batch of random tokens and on one of text, with models of different seeds; theory is asked for
the same batch. An error is the median over layers of |measured/predicted − 1|, measured being the geometric mean over
seeds (a difference of means for overlaps and coherences). It is above its bar where it is larger than the allowed
error and than two standard errors of the measurement.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import normlab as nl
from normlab.files import write_whole
from normlab.recording import record
from normlab.theory import predict

DOCS = Path(__file__).resolve().parents[1] / "docs"
KEPT = DOCS / "theory_measured.csv.gz"
MARKS = ("<!-- errors: begin -->", "<!-- errors: end -->")

#: What is varied against the first case, the plainest first.
CASES: dict[str, dict[str, object]] = {
    "pre": {},
    "post": {"placement": "post"},
    "peri": {"placement": "peri"},
    "pre, no attention": {"attention": "none"},
    "post, no attention": {"placement": "post", "attention": "none"},
    "pre, uniform": {"attention": "uniform"},
    "post, uniform": {"placement": "post", "attention": "uniform"},
    "pre, relu": {"activation": "relu"},
    "pre, encoder": {"kind": "encoder"},
    "hybridnorm": {"placement": "hybridnorm"},
    "deepnorm": {"placement": "deepnorm", "init": "deepnorm"},
    "lns": {"placement": "lns"},
    "gpt2-scaled": {"init": "gpt2-scaled"},
    "sub-ln": {"placement": "sub-ln", "init": "magneto"},
    "mix-ln": {"placement": "mix-ln"},
    "b2t": {"placement": "b2t"},
    "pre, qk-norm": {"qk_norm": "rmsnorm"},
    "pre, swiglu, rmsnorm": {"activation": "swiglu", "norm": "rmsnorm"},
    "post, swiglu, rmsnorm": {"placement": "post", "activation": "swiglu", "norm": "rmsnorm"},
    "pre, parallel": {"parallel": True},
    "pre, learned positions": {"position": "learned"},
    "pre, dyt": {"norm": "dyt"},
    "residual": {"placement": "residual"},
    "ngpt": {"placement": "ngpt", "norm": "rmsnorm", "qk_norm": "l2norm"},
    "pre, encoder-decoder": {"kind": "encoder-decoder"},
    "post, encoder-decoder": {"kind": "encoder-decoder", "placement": "post"},
    "pre, tied": {"tie_embeddings": True},
    "post, tied": {"placement": "post", "tie_embeddings": True},
    "pre, sinusoidal": {"position": "sinusoidal"},
}

#: Column of the table: the rows it covers, and the error allowed.
GROUPS: dict[str, tuple[dict[str, tuple[str, ...]], float]] = {
    "stream rms": ({"site": ("stream",), "quantity": ("rms",)}, 0.02),
    "overlap": ({"site": ("stream",), "quantity": ("token_overlap",)}, 0.02),
    "stream gradient": ({"site": ("stream_grad",), "quantity": ("l2",)}, 0.06),
    "parameters": ({"quantity": ("grad_norm",), "role": ("v", "o", "up", "gate", "down")}, 0.06),
    "q, k": ({"quantity": ("grad_norm",), "role": ("q", "k")}, 0.20),
}
_DIFFERENCES = ("token_overlap", "grad_coherence")
_TEXT = ("stack", "sublayer", "site", "quantity", "role")
_KEY = ["layer", *_TEXT]
_MEASURED = ["rms", "token_overlap", "l2", "grad_coherence", "grad_norm"]
_SITES = ["stream", "stream_grad"]
_ROUND = 8  # seeds of one file: all cases get these before any gets more


@dataclass(frozen=True)
class Size:
    """The shape of every case: L, d, tokens of a sequence, sequences."""

    depth: int
    width: int
    tokens: int
    batch: int

    def spec(self, case: str) -> nl.ModelSpec:
        """Return the model of a case."""
        return nl.ModelSpec(depth=self.depth, width=self.width, **CASES[case])  # type: ignore[arg-type]

    def batches(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Return the batch of random tokens and that of text."""
        return {
            "random": nl.data.random_batch(batch=self.batch, tokens=self.tokens, seed=1),
            "text": nl.data.text_batch(batch=self.batch, tokens=self.tokens, seed=1),
        }


def _logs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a value, with its logarithm (an overlap itself)."""
    rows = rows[rows["status"] == "ok"].astype({name: object for name in _TEXT})
    values = rows["value"].to_numpy()
    with np.errstate(all="ignore"):
        logs = np.where(rows["quantity"].isin(_DIFFERENCES), values, np.log(values))
    return rows.assign(log=logs)


def measure(size: Size, case: str, seeds: range) -> pd.DataFrame:
    """Return mean, sum of squared deviations and count over seeds of each row's logarithm (of overlaps themselves)."""
    tables = []
    for seed in seeds:
        model = nl.build(size.spec(case), seed=seed)
        for data, batch in size.batches().items():
            with record(model, sites=_SITES, quantities=_MEASURED) as recorder:
                model.loss(*batch).backward()
            tables.append(_logs(recorder.table()).assign(data=data))
            model.zero_grad(set_to_none=True)
    rows = pd.concat(tables)
    logs = rows[rows["role"] != "all"].groupby(["data", *_KEY])["log"]
    sums = logs.agg(mean="mean", count="count", m2=lambda log: float(((log - log.mean()) ** 2).sum()))
    return sums.reset_index().assign(case=case)


def measure_all(size: Size, names: list[str], seeds: int, out: Path) -> None:
    """Write one file for each case and round of seeds, leaving alone those that are there."""
    out.mkdir(parents=True, exist_ok=True)
    for start in range(0, seeds, _ROUND):
        for number, case in enumerate(CASES):
            stop = min(start + _ROUND, seeds)
            path = (
                out / f"{number:02d}-{start:03d}-{stop:03d}-L{size.depth}-d{size.width}-n{size.tokens}x{size.batch}.csv"
            )
            if case in names and not path.exists():
                rows = measure(size, case, range(start, stop)).assign(**vars(size))
                write_whole(path, rows.to_csv(index=False))
                print(f"{case}: seeds {start} to {stop - 1}", file=sys.stderr, flush=True)


def collect(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the moments of all seeds: one row a case, batch and measured row, with `mean`, `sd` and `count`."""
    rows = pd.concat(parts).fillna({name: "" for name in _TEXT})
    keys = ["case", "data", *_KEY, *Size.__dataclass_fields__]
    rows["total"] = rows["mean"] * rows["count"]
    rows["square"] = rows["m2"] + rows["mean"] ** 2 * rows["count"]
    sums = rows.groupby(keys, sort=False)[["total", "square", "count"]].sum().reset_index()
    mean = sums["total"] / sums["count"]
    m2 = (sums["square"] - mean**2 * sums["count"]).clip(lower=0)
    sd = np.sqrt(m2 / (sums["count"] - 1).where(sums["count"] > 1))
    order = {case: number for number, case in enumerate(CASES)}
    kept = sums[[*keys, "count"]].assign(mean=mean.round(5), sd=sd.round(4), order=sums["case"].map(order))
    return kept.sort_values(["order", "data", "site", "quantity", "role", "sublayer", "layer"]).drop(columns="order")


def write_kept(rows: pd.DataFrame) -> None:
    """Write the measured table: the same rows give the same bytes."""
    KEPT.write_bytes(gzip.compress(rows.to_csv(index=False).encode(), mtime=0))


def read_kept() -> pd.DataFrame:
    """Return the measured table."""
    return pd.read_csv(KEPT, keep_default_na=False, na_values={"mean": [""], "sd": [""]})


def compare(measured: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Return one row a quantity and layer: its error, and the standard error of the measurement."""
    both = measured.merge(_logs(predicted)[[*_KEY, "log", "sd_log"]], on=_KEY)
    difference = both["mean"] - both["log"]
    error = np.where(both["quantity"].isin(_DIFFERENCES), difference, np.expm1(difference))
    return both.assign(error=error, se=both["sd"] / np.sqrt(both["count"]))


def summary(errors: pd.DataFrame) -> Iterator[tuple[str, float, float, bool]]:
    """Yield for each group its median error, the allowed one, and whether it is above the bar."""
    for name, (_, allowed) in GROUPS.items():
        rows = _rows(errors, name)
        if len(rows):
            median = float(rows["error"].abs().median())
            yield name, median, allowed, median > max(allowed, 2 * float(rows["se"].median()))


def table(kept: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the Markdown table: measured means against what theory says of the same batches."""
    groups = " | ".join(f"{name} (≤ {allowed:g})" for name, (_, allowed) in GROUPS.items())
    yield f"| case | data | seeds | {groups} | spread |"
    yield "|---|---|---|" + "---|" * (len(GROUPS) + 1)
    for (case, data), measured in kept.groupby(["case", "data"], sort=False):
        size = Size(**{name: int(measured[name].iloc[0]) for name in Size.__dataclass_fields__})
        predicted = predict(size.spec(str(case)), size.batches()[str(data)], jacobian=False)
        both = compare(measured, predicted)
        cells = {group: (error, above) for group, error, _, above in summary(both)}
        shown = [_cell(*cells[group]) if group in cells else _absent(measured, group) for group in GROUPS]
        yield f"| {case} | {data} | {measured['count'].max()} | " + " | ".join(shown) + f" | {_spread(both)} |"


def _rows(table: pd.DataFrame, group: str) -> pd.DataFrame:
    for column, values in GROUPS[group][0].items():
        table = table[table[column].isin(values)]
    return table


def _absent(measured: pd.DataFrame, group: str) -> str:
    return "no theory" if len(_rows(measured, group)) else "–"


def _spread(both: pd.DataFrame) -> str:
    """Of the stream's gradient: the median over layers of the measured standard deviation over the predicted one."""
    rows = _rows(both, "stream gradient")
    rows = rows[rows["sd_log"] > 0]
    return f"{float((rows['sd'] / rows['sd_log']).median()):.2f}" if len(rows) else "–"


def _cell(median: float, above: bool) -> str:
    return f"**{median:.3f}**" if above else f"{median:.3f}"


def page(kept: pd.DataFrame) -> str:
    """Return what stands between the page's marks."""
    first = kept.iloc[0]
    head = (
        f"Depth {first['depth']}, width {first['width']}, sequences: {first['batch']} of {first['tokens']} tokens. "
        "Bold: above the bar. Spread: the standard deviation over seeds of the logarithm of the stream's gradient, "
        "measured over predicted, the median over layers."
    )
    return "\n".join([MARKS[0], head, "", *table(kept), MARKS[1]])


def _write_page(text: str) -> None:
    path = DOCS / "theory.md"
    old = path.read_text(encoding="utf-8")
    path.write_text(old.split(MARKS[0])[0] + text + old.split(MARKS[1])[1], encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "collect", "table"))
    parser.add_argument("--cases", default=";".join(CASES), help="names, separated by semicolons")
    for name, value in (("depth", 32), ("width", 256), ("tokens", 64), ("batch", 1), ("seeds", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, help="the folder of what was measured")
    parser.add_argument("--print", action="store_true", help="do not write the page")
    return parser.parse_args()


def main() -> None:
    """Measure, collect what was measured, or write the page's table."""
    given = _arguments()
    torch.set_num_threads(1)
    names = given.cases.split(";")
    if given.action == "measure":
        measure_all(Size(given.depth, given.width, given.tokens, given.batch), names, given.seeds, given.out)
    elif given.action == "collect":
        write_kept(collect([pd.read_csv(path) for path in sorted(given.out.glob("*.csv"))]))
    else:
        kept = read_kept()
        text = page(kept[kept["case"].isin(names)])
        print(text) if given.print else _write_page(text)


if __name__ == "__main__":
    main()
