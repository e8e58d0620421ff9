"""Check the statistics of verdicts on simulated data whose truth is known, and write docs/statistics.md.

    python tools/check_statistics.py             # some minutes
    python tools/check_statistics.py --draws 200 # a quick look; nothing is written

Coverage of the 95 % interval, false verdicts of every decision rule in both directions, and how often the vote over
seeds finds the law that made a stream: at 5, 8 and 16 seeds, for normal numbers and for streams with the noise of real
sweeps (tests/simulated.py).
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import numpy as np

from normlab import fits
from normlab.claims import Above, Below, EqualWithin, Rule, ZeroWithin
from normlab.fits.intervals import Floats
from normlab.table import read_csv

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "statistics.md"
SEEDS: Final = (5, 8, 16)
ALPHA: Final = 0.01
LAYERS: Final = 64
#: Exponent of a stream's increments, and the law that they sum to.
LAWS: Final = ((-1.0, "logarithmic"), (-0.5, "sqrt"), (0.0, "linear"), (1.0, "quadratic"))


@dataclass(frozen=True)
class Row:
    """One line of the page.

    Attributes:
        what: what was checked.
        seeds: seeds of each draw.
        draws: number of draws.
        found: share of the draws.
        low: smallest share that is right.
        high: largest.
    """

    what: str
    seeds: int
    draws: int
    found: float
    low: float
    high: float

    @property
    def right(self) -> bool:
        """Whether the share is where it belongs."""
        return self.low <= self.found <= self.high


def simulated() -> ModuleType:
    """tests/simulated.py."""
    spec = importlib.util.spec_from_file_location("simulated", ROOT / "tests" / "simulated.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normal(rng: np.random.Generator, truth: float, count: int) -> Floats:
    """Draw one number a seed, as slopes of gradients scatter."""
    return rng.normal(truth, 0.08, count)


def of_streams(rng: np.random.Generator, truth: float, count: int) -> Floats:
    """Draw streams and return the exponent of each one's increments."""
    y = simulated().stream(rng, count, LAYERS, exponent=truth)
    return np.asarray(fits.increments_exponent((np.arange(LAYERS + 1.0), y)).per_seed)


KINDS: Final[dict[str, Callable[[np.random.Generator, float, int], Floats]]] = {
    "normal numbers": normal,
    "exponents of streams": of_streams,
}


def coverage(draws: int, *, slack: float = 0.0) -> Iterator[Row]:
    """Yield how often the 95 % interval holds the truth; it should in 93 to 97 % of the draws."""
    for kind, draw in KINDS.items():
        for seeds in SEEDS:
            values = draw(np.random.default_rng([1, seeds]), 0.15, draws * seeds).reshape(draws, seeds)
            intervals = [fits.seed_interval(row) for row in values]
            found = float(np.mean([interval.low <= 0.15 <= interval.high for interval in intervals]))
            yield Row(f"95 % interval of {kind}", seeds, draws, found, 0.93 - slack, 0.97 + slack)


#: A rule, the truth on the edge of which it is tested, the wrong verdict there, and the kind of numbers.
EDGES: Final[tuple[tuple[Rule, float, str, str], ...]] = (
    (EqualWithin(-0.5, 0.1), -0.4, "supported", "normal numbers"),
    (EqualWithin(-0.5, 0.1), -0.4, "refuted", "normal numbers"),
    (EqualWithin(-0.5, 0.1), -0.6, "supported", "normal numbers"),
    (EqualWithin(-0.5, 0.1), -0.6, "refuted", "normal numbers"),
    (Above(-0.1), -0.1, "supported", "normal numbers"),
    (Above(-0.1), -0.1, "refuted", "normal numbers"),
    (Below(0.3), 0.3, "supported", "normal numbers"),
    (Below(0.3), 0.3, "refuted", "normal numbers"),
    (ZeroWithin(0.15), 0.15, "supported", "normal numbers"),
    (ZeroWithin(0.15), 0.0, "refuted", "normal numbers"),
    (ZeroWithin(0.15), 0.15, "supported", "exponents of streams"),
    (ZeroWithin(0.15), 0.0, "refuted", "exponents of streams"),
)


def false_verdicts(draws: int, *, factor: float = 1.3) -> Iterator[Row]:
    """Yield how often a rule gives the wrong verdict on its edge: at most ``factor`` times α."""
    for rule, truth, wrong, kind in EDGES:
        for seeds in SEEDS:
            values = KINDS[kind](np.random.default_rng([2, seeds]), truth, draws * seeds).reshape(draws, seeds)
            found = float(np.mean([rule.decide(row, ALPHA).outcome == wrong for row in values]))
            yield Row(f"{rule!r}, truth {truth:g}, {wrong}: {kind}", seeds, draws, found, 0.0, factor * ALPHA)


def right_laws(draws: int, *, least: float = 0.95) -> Iterator[Row]:
    """Yield how often the vote over seeds finds the law that made the streams: in 95 % of the draws or more."""
    stream, layers = simulated().stream, np.arange(LAYERS + 1.0)
    for exponent, law in LAWS:
        for seeds in SEEDS:
            y = stream(np.random.default_rng([3, seeds]), draws * seeds, LAYERS, exponent=exponent)
            parts = y.reshape(draws, seeds, LAYERS + 1)[:, :, 1:]
            found = float(np.mean([fits.growth_law((layers[1:], part)).law == law for part in parts]))
            yield Row(f"law of streams that grow {law}", seeds, draws, found, least, 1.0)


def spreads() -> tuple[float, float, float]:
    """Return the standard deviation over seeds of ln q_64: simulated, and measured at width 128 (MLP, full block)."""
    y = simulated().stream(np.random.default_rng(4), 2000, LAYERS)
    table = read_csv(ROOT / "docs" / "claims.csv.gz")
    query = (
        "quantity == 'mean_square' and site == 'stream' and layer == 64 and depth == 64 and width == 128 and "
        "placement == 'pre' and norm == 'layernorm' and final_norm == 'on' and init == 'xavier' "
        "and activation == 'relu'"
    )
    rows = table.query(query)
    measured = [
        float(np.log(rows[rows["attention"] == attention]["value"]).std(ddof=1)) for attention in ("none", "softmax")
    ]
    return float(np.log(y[:, -1]).std(ddof=1)), *measured


def page(rows: list[Row], noise: tuple[float, float, float]) -> str:
    """Return the page."""
    lines = [
        "# Statistics of the verdicts",
        "",
        "What one number a seed, Student's t and the vote over seeds do on simulated data whose truth is known: how "
        "often the 95 % interval holds the truth, how often a rule gives the wrong verdict on its own edge (α = 0.01), "
        "and how often the vote finds the law that made a stream. Written by `tools/check_statistics.py`.",
        "",
        f"The simulated streams have the noise of real sweeps: the standard deviation over seeds of ln q after 64 "
        f"blocks is {noise[0]:.3f}, measured {noise[1]:.3f} without attention and {noise[2]:.3f} in a full block.",
        "",
        "| what | seeds | draws | share | should be |",
        "|---|---|---|---|---|",
        *(
            f"| {row.what} | {row.seeds} | {row.draws} | {row.found:.4f} | {row.low:g} to {row.high:g} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Check all, print what is not as it should be, and write the page of a full check."""
    quick = int(sys.argv[2]) if sys.argv[1:2] == ["--draws"] else 0
    rows = [*coverage(quick or 5000), *false_verdicts(quick or 10_000), *right_laws(quick or 1000)]
    for row in rows:
        print(f"{'ok   ' if row.right else 'WRONG'} {row.what}, {row.seeds} seeds: {row.found:.4f}")
    if not quick:
        PAGE.write_text(page(rows, spreads()), encoding="utf-8")
    sys.exit(not quick and not all(row.right for row in rows))


if __name__ == "__main__":
    main()
