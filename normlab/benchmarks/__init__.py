"""Benchmarks: what norms cost, measured by interleaved runs and told as ratios with intervals."""

from normlab.benchmarks.bandwidth import copy_bandwidth
from normlab.benchmarks.norms import PASSES, NormBench, bench_norms
from normlab.benchmarks.ratios import FEWEST_ROUNDS, Ratio, ratio_of_medians
from normlab.benchmarks.timing import fixed_threads, interleaved, median_seconds
from normlab.benchmarks.ways import WAYS, Problem, Way

__all__ = [
    # times
    "fixed_threads",
    "interleaved",
    "median_seconds",
    "copy_bandwidth",
    # ratios
    "FEWEST_ROUNDS",
    "Ratio",
    "ratio_of_medians",
    # norms
    "PASSES",
    "WAYS",
    "Way",
    "Problem",
    "NormBench",
    "bench_norms",
]
