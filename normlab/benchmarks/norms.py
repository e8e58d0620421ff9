"""Times of LayerNorm and RMSNorm, every way to compute them, over sizes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import torch

from normlab.benchmarks.bandwidth import copy_bandwidth
from normlab.benchmarks.ratios import FEWEST_ROUNDS, ratio_of_medians
from normlab.benchmarks.timing import SHORTEST_SAMPLE, Timed, fixed_threads, interleaved
from normlab.benchmarks.ways import NORMS, WAYS, Problem
from normlab.errors import NormlabError, unknown_name
from normlab.fits.intervals import Floats

#: What is timed: y alone, or y and all gradients.
PASSES: Final = ("forward", "forward+backward")
#: Rows and features, from what fits into the first cache to what fits into none.
SIZES: Final = ((32, 256), (32, 1024), (32, 4096), (2048, 1024), (8192, 4096))
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class NormBench:
    """What a benchmark of the norms found.

    Attributes:
        times: one row for each size, pass, norm and way: median seconds, bytes moved at least, bandwidth, and its
            share of what copying as much memory at that size, and copying far more than any cache holds, reaches.
        ratios: LayerNorm's time over RMSNorm's in each way, and every way's over the fused one, with intervals.
        missing: ways that could not run here, with the reason.
        settings: threads, type of numbers, device, rounds, seed and the machine's copy bandwidth.
    """

    times: pd.DataFrame
    ratios: pd.DataFrame
    missing: Mapping[str, str]
    settings: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "settings": dict(self.settings),
            "times": self.times.to_dict(orient="records"),
            "ratios": self.ratios.to_dict(orient="records"),
            "missing": dict(self.missing),
        }


def bench_norms(
    sizes: Sequence[tuple[int, int]] = SIZES,
    *,
    ways: Sequence[str] = tuple(WAYS),
    passes: Sequence[str] = PASSES,
    rounds: int = 40,
    threads: int = 1,
    dtype: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    shortest: float = SHORTEST_SAMPLE,
    copied_megabytes: float = 256.0,
) -> NormBench:
    """Time LayerNorm and RMSNorm in several ways, taking turns, forward and backward.

    Within a size and a pass all norms, ways and a plain copy run in every round, so that ratios compare the same
    conditions. Bytes moved are the fewest that the result allows: forward reads x and writes y, backward reads x and
    dy and writes dx; gain, bias and their gradients count once. What keeps intermediate results moves more, and so
    shows a smaller share.

    Args:
        sizes: pairs of rows and width.
        ways: names of :data:`normlab.benchmarks.WAYS`.
        passes: of :data:`PASSES`.
        rounds: samples of each.
        threads: of torch; NumPy's elementwise code uses one in any case.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: torch's name of the device.
        seed: of the data, the order and the bootstrap.
        shortest: seconds that a sample lasts at least.
        copied_megabytes: size of the array whose copy gives the machine's bandwidth.

    Raises:
        NormlabError: too few rounds, a size that is not positive, or a device that is not here.
        UnknownNameError: no way, pass or type of numbers has that name.
    """
    _check(sizes, ways, passes, rounds, dtype, device)
    missing = {name: why for name in ways if (why := WAYS[name].missing(device, _DTYPES[dtype]))}
    able = [name for name in ways if name not in missing]
    with fixed_threads(threads):
        bandwidth = copy_bandwidth(copied_megabytes, threads=threads, device=device)
        parts = [
            _Run(rows, width, passed, _timed(rows, width, passed, able, dtype, device, rounds, seed, shortest))
            for rows, width in sizes
            for passed in passes
        ]
    settings = {
        "threads": threads, "dtype": dtype, "device": device, "rounds": rounds, "seed": seed,
        "copy_gb_per_s": bandwidth / 1e9, "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip
    itemsize = _DTYPES[dtype].itemsize
    return NormBench(
        times=pd.DataFrame([row for run in parts for row in run.times(itemsize, bandwidth)]),
        ratios=pd.DataFrame([row for run in parts for row in run.ratios(seed)]),
        missing=missing,
        settings=settings,
    )


def least_bytes(norm: str, rows: int, width: int, passed: str, itemsize: int) -> int:
    """Return the bytes that must be moved: every input read once, every result written once."""
    parameters = width * (2 if norm == "layernorm" else 1)
    forward = 2 * rows * width + parameters
    backward = 3 * rows * width + width + parameters  # x, dy, dx; the gain; gradients of gain and bias
    return itemsize * (forward if passed == "forward" else forward + backward)


@dataclass(frozen=True, eq=False)
class _Run:
    """Seconds of one size and pass, by "norm/way" and "copy"."""

    rows: int
    width: int
    passed: str
    seconds: Mapping[str, Floats]

    @property
    def about(self) -> dict[str, Any]:
        return {"rows": self.rows, "width": self.width, "pass": self.passed}

    def times(self, itemsize: int, bandwidth: float) -> Iterator[dict[str, Any]]:
        copied = 2 * self.rows * self.width * itemsize / float(np.median(self.seconds["copy"]))
        for name, seconds in self.seconds.items():
            norm, _, way = name.partition("/")
            median = float(np.median(seconds))
            moved = (
                least_bytes(norm, self.rows, self.width, self.passed, itemsize)
                if way
                else 2 * self.rows * self.width * itemsize
            )
            yield {
                **self.about,
                "norm": norm if way else "",
                "way": way or "copy",
                "median_seconds": median,
                "bytes": moved,
                "gb_per_s": moved / median / 1e9,
                "share_of_copy": moved / median / copied,
                "share_of_machine": moved / median / bandwidth,
            }

    def ratios(self, seed: int) -> Iterator[dict[str, Any]]:
        names = [name for name in self.seconds if name != "copy"]
        ways = list(dict.fromkeys(name.partition("/")[2] for name in names))
        pairs = [(f"layernorm/{way}", f"rmsnorm/{way}") for way in ways]
        pairs += [(f"{norm}/{way}", f"{norm}/fused") for norm in NORMS for way in ways if way != "fused"]
        for first, second in pairs:
            if second in self.seconds:
                found = ratio_of_medians(self.seconds[first], self.seconds[second], seed=seed)
                yield {**self.about, "first": first, "second": second, **_ratio_columns(asdict(found))}


def _ratio_columns(found: dict[str, Any]) -> dict[str, Any]:
    return {"ratio": found["value"], **{name: found[name] for name in ("low", "high", "level", "rounds")}}


def _timed(
    rows: int,
    width: int,
    passed: str,
    ways: Sequence[str],
    dtype: str,
    device: str,
    rounds: int,
    seed: int,
    shortest: float,
) -> dict[str, Floats]:
    problem = Problem.draw(rows, width, seed=seed, dtype=_DTYPES[dtype], device=device)
    target = torch.empty_like(problem.x)
    torch.compiler.reset()  # code compiled for earlier sizes fills a cache that is small, and silently falls back
    functions: dict[str, Timed] = {"copy": lambda: target.copy_(problem.x)}
    for norm in NORMS:
        for name in ways:
            way = WAYS[name]
            functions[f"{norm}/{name}"] = (way.forward if passed == "forward" else way.both)(norm, problem)
    wait = torch.cuda.synchronize if device.startswith("cuda") else None
    return interleaved(functions, rounds=rounds, seed=seed, shortest=shortest, synchronise=wait)


def _check(
    sizes: Sequence[tuple[int, int]], ways: Sequence[str], passes: Sequence[str], rounds: int, dtype: str, device: str
) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise NormlabError(f"the device is {device!r} and torch sees no GPU: give 'cpu'")
    for kind, given, known in (("way", ways, WAYS), ("pass", passes, PASSES), ("dtype", [dtype], _DTYPES)):
        for name in given:
            if name not in known:
                raise unknown_name(kind, name, known)
    if rounds < FEWEST_ROUNDS:
        raise NormlabError(f"{rounds} rounds are too few for an interval: give {FEWEST_ROUNDS} or more")
    if not sizes or any(rows < 1 or width < 1 for rows, width in sizes):
        raise NormlabError(f"sizes are {list(sizes)}: give pairs of at least one row and one feature")
