"""Times of functions that take turns, so that whatever slows the machine slows all of them alike."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np
import torch

from normlab.fits.intervals import Floats

#: What is timed: its result is thrown away.
Timed: TypeAlias = Callable[[], object]
#: A sample lasts at least this long, so that the clock's own cost stays below a per cent.
SHORTEST_SAMPLE: Final = 2e-4
_MOST_CALLS: Final = 10_000


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Let torch use ``count`` threads within the block, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def interleaved(
    functions: Mapping[str, Timed],
    *,
    rounds: int,
    warm_up: int = 3,
    shortest: float = SHORTEST_SAMPLE,
    seed: int = 0,
    synchronise: Callable[[], None] | None = None,
) -> dict[str, Floats]:
    """Return seconds per call, ``[rounds]``, of functions that take turns in every round.

    The order within a round is drawn anew each time: none always runs on what another left in the caches.
    A sample repeats a short function until it lasts ``shortest`` seconds and gives the mean over the calls.

    Args:
        functions: what to time, by name.
        rounds: samples of each.
        warm_up: rounds that are thrown away.
        shortest: seconds that a sample lasts at least, roughly.
        seed: of the order.
        synchronise: waits until a device has done what it was given; called before a clock is read.
    """
    wait = synchronise or _nothing
    calls = {name: _calls(function, shortest, wait) for name, function in functions.items()}
    rng, names = np.random.default_rng(seed), list(functions)
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm_up + rounds):
        for place in rng.permutation(len(names)):
            name = names[int(place)]
            seconds = _sample(functions[name], calls[name], wait)
            if turn >= warm_up:
                found[name].append(seconds)
    return {name: np.asarray(values) for name, values in found.items()}


def median_seconds(
    functions: Mapping[str, Timed], *, rounds: int = 15, warm_up: int = 2, seed: int = 0, device: str = "cpu"
) -> dict[str, float]:
    """Return each function's median seconds per call, of runs that take turns on a device."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else None
    found = interleaved(functions, rounds=rounds, warm_up=warm_up, seed=seed, synchronise=wait)
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def _calls(function: Timed, shortest: float, wait: Callable[[], None]) -> int:
    """How many calls make a sample: the first call may compile, the second says how long one takes."""
    _sample(function, 1, wait)
    once = min(_sample(function, 1, wait) for _ in range(2))
    return min(max(1, math.ceil(shortest / max(once, 1e-9))), _MOST_CALLS)


def _sample(function: Timed, calls: int, wait: Callable[[], None]) -> float:
    wait()
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    wait()
    return (time.perf_counter() - begin) / calls


def _nothing() -> None:
    """Nothing to wait for on a CPU."""
