"""Measure how far theory is from measured models, and keep the table of errors in docs/theory.md.

    python tools/theory_errors.py --seeds 32 --depth 32 --width 256 --tokens 64
    python tools/theory_errors.py --cases pre,post --seeds 8 --depth 12 --print

Each case is run on one batch of random tokens and on one of text, with models of different seeds; theory is asked for
the same batch. An error is the median over layers of |measured/predicted − 1|, measured being the geometric mean over
seeds (a difference of means for overlaps and coherences). It is above its bar where it is larger than the allowed
error and than two standard errors of the measurement.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import normlab as nl
from normlab.recording import record
from normlab.theory import predict

PAGE = Path(__file__).resolve().parents[1] / "docs" / "theory.md"
MARKS = ("<!-- errors: begin -->", "<!-- errors: end -->")

#: What is varied against the first case.
CASES: dict[str, dict[str, object]] = {
    "pre": {},
    "post": {"placement": "post"},
    "peri": {"placement": "peri"},
    "deepnorm": {"placement": "deepnorm", "init": "deepnorm"},
    "lns": {"placement": "lns"},
    "gpt2-scaled": {"init": "gpt2-scaled"},
    "sub-ln": {"placement": "sub-ln", "init": "magneto"},
    "mix-ln": {"placement": "mix-ln"},
    "hybridnorm": {"placement": "hybridnorm"},
    "b2t": {"placement": "b2t"},
    "ngpt": {"placement": "ngpt", "norm": "rmsnorm", "qk_norm": "l2norm"},
    "residual": {"placement": "residual"},
    "pre, relu": {"activation": "relu"},
    "pre, swiglu, rmsnorm": {"activation": "swiglu", "norm": "rmsnorm"},
    "post, swiglu, rmsnorm": {"placement": "post", "activation": "swiglu", "norm": "rmsnorm"},
    "pre, qk-norm": {"qk_norm": "rmsnorm"},
    "pre, dyt": {"norm": "dyt"},
    "pre, uniform": {"attention": "uniform"},
    "post, uniform": {"placement": "post", "attention": "uniform"},
    "pre, encoder": {"kind": "encoder"},
    "pre, parallel": {"parallel": True},
    "pre, learned positions": {"position": "learned"},
    "pre, no attention": {"attention": "none"},
    "post, no attention": {"placement": "post", "attention": "none"},
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
_KEY = ["layer", "sublayer", "site", "quantity", "role"]


def measure(spec: nl.ModelSpec, batch: tuple[torch.Tensor, torch.Tensor], seeds: int) -> pd.DataFrame:
    """Return the mean over seeds of each row's logarithm (of overlaps themselves), and its standard deviation."""
    tables = []
    for seed in range(seeds):
        model = nl.build(spec, seed=seed)
        with record(model, quantities=["rms", "token_overlap", "l2", "grad_norm"]) as recorder:
            model.loss(*batch).backward()
        tables.append(recorder.table())
    rows = pd.concat(tables)
    rows = rows[rows["status"] == "ok"].astype({name: object for name in ("sublayer", "site", "quantity", "role")})
    return _logs(rows).groupby(_KEY)["log"].agg(["mean", "std", "count"]).reset_index()


def _logs(rows: pd.DataFrame) -> pd.DataFrame:
    values = rows["value"].to_numpy()
    with np.errstate(all="ignore"):
        logs = np.where(rows["quantity"].isin(_DIFFERENCES), values, np.log(values))
    return rows.assign(log=logs)


def compare(spec: nl.ModelSpec, batch: tuple[torch.Tensor, torch.Tensor], seeds: int) -> pd.DataFrame:
    """Return one row a quantity and layer: its error, and the standard error of the measurement."""
    predicted = predict(spec, batch, jacobian=False)
    predicted = predicted[predicted["status"] == "ok"]
    predicted = _logs(predicted.astype({name: object for name in ("sublayer", "site", "quantity", "role")}))
    both = measure(spec, batch, seeds).merge(predicted[[*_KEY, "log", "sd_log"]], on=_KEY)
    difference = both["mean"] - both["log"]
    error = np.where(both["quantity"].isin(_DIFFERENCES), difference, np.expm1(difference))
    return both.assign(error=error, se=both["std"] / np.sqrt(both["count"]))


def summary(errors: pd.DataFrame) -> Iterator[tuple[str, float, float, bool]]:
    """Yield for each group its median error, the allowed one, and whether it is above the bar."""
    for name, (select, allowed) in GROUPS.items():
        rows = errors
        for column, values in select.items():
            rows = rows[rows[column].isin(values)]
        if len(rows):
            median = float(rows["error"].abs().median())
            yield name, median, allowed, median > max(allowed, 2 * float(rows["se"].median()))


def run(names: list[str], depth: int, width: int, tokens: int, batch: int, seeds: int) -> list[str]:
    """Return the lines of the Markdown table."""
    lines = [
        "| case | data | " + " | ".join(f"{name} (≤ {allowed:g})" for name, (_, allowed) in GROUPS.items()) + " |",
        "|---|---|" + "---|" * len(GROUPS),
    ]
    for name in names:
        spec = nl.ModelSpec(depth=depth, width=width, **CASES[name])  # type: ignore[arg-type]
        for data, drawn in (
            ("random", nl.data.random_batch(batch=batch, tokens=tokens, seed=1)),
            ("text", nl.data.text_batch(batch=batch, tokens=tokens, seed=1)),
        ):
            cells = {group: (median, above) for group, median, _, above in summary(compare(spec, drawn, seeds))}
            shown = [_cell(*cells[group]) if group in cells else "no theory" for group in GROUPS]
            lines.append(f"| {name} | {data} | " + " | ".join(shown) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _cell(median: float, above: bool) -> str:
    return f"**{median:.3f}**" if above else f"{median:.3f}"


def main() -> None:
    """Run the cases and write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=";".join(CASES), help="names, separated by semicolons")
    for name, value in (("depth", 32), ("width", 256), ("tokens", 64), ("batch", 2), ("seeds", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--print", action="store_true", help="do not write the page")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = given.cases.split(";")
    lines = run(names, given.depth, given.width, given.tokens, given.batch, given.seeds)
    head = (
        f"Depth {given.depth}, width {given.width}, sequences: {given.batch} of {given.tokens} tokens, "
        f"{given.seeds} seeds. Bold: above the bar."
    )
    if given.print:
        print("\n".join([head, "", *lines]))
    else:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(MARKS[0])[0], page.split(MARKS[1])[1]
        text = "\n".join([MARKS[0], head, "", *lines, MARKS[1]])
        PAGE.write_text(before + text + after, encoding="utf-8")


if __name__ == "__main__":
    main()
