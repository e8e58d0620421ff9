"""What recording costs: a recorded forward and backward pass against a bare one, as a ratio of medians.

    python tools/bench_recording.py                  # the two shapes that the documentation quotes
    python tools/bench_recording.py --steps 40
    python tools/bench_recording.py --profile        # where the time of a recorded step goes

Beside it stands what plain hooks cost that take a sum, a norm and the extremes of every leaf module's
output and gradient, and nothing else: it tells how dear a call is on this machine. Bare, hooked and
recorded steps alternate in one process on one thread, so that other load meets all alike. A recorder stays
attached for a few steps, as in a training loop; what it costs to make one, and a table, stands beside.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Recorder

SHAPES = ((12, 384, 6), (24, 128, 4))
TOGETHER = 4
Ways = dict[str, Callable[[nn.Module], AbstractContextManager[Any]]]


def main() -> None:
    """Print one line a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of each kind")
    parser.add_argument("--placement", default="pre")
    parser.add_argument("--profile", action="store_true", help="print where the time of a recorded step goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ways: Ways = {"bare": lambda model: nullcontext(), "plain hooks": plain_hooks, "recorded": nl.record}
    for depth, width, heads in SHAPES:
        model = nl.build(nl.ModelSpec(depth=depth, width=width, heads=heads, placement=options.placement))
        batch = nl.data.random_batch(batch=4, tokens=128)
        if options.profile:
            profile(lambda model=model, batch=batch: steps(model, batch, nl.record, 1))
        medians = measure(model, batch, ways, options.steps)
        ratios = ", ".join(f"{way} {medians[way] / medians['bare']:.3f}" for way in ways)
        print(
            f"L={depth} d={width} B=4 n=128 {options.placement}, {medians['bare'] * 1e3:.0f} ms a bare step: {ratios}; "
            f"once {medians['once'] * 1e3:.0f} ms, table {medians['table'] * 1e3:.0f} ms"
        )


def steps(
    model: Any, batch: tuple[Tensor, Tensor], way: Callable[[nn.Module], AbstractContextManager[Any]], number: int
) -> tuple[list[float], float, Any]:
    """Run steps inside one context: return the seconds of each, those of coming and going, and what it gives."""
    seconds = []
    start = time.perf_counter()
    with way(model) as recorder:
        for _ in range(number):
            model.zero_grad(set_to_none=True)
            begin = time.perf_counter()
            model.loss(*batch).backward()
            if isinstance(recorder, Recorder):
                recorder.step()
            seconds.append(time.perf_counter() - begin)
        model.zero_grad(set_to_none=True)
    return seconds, time.perf_counter() - start - sum(seconds), recorder


def measure(model: Any, batch: tuple[Tensor, Tensor], ways: Ways, number: int) -> dict[str, float]:
    """Return the median seconds of each kind of step, of making a recorder and of a table of one step."""
    seconds: dict[str, list[float]] = {way: [] for way in [*ways, "once", "table"]}
    for turn in range(-(-number // TOGETHER) + 1):
        for name, way in ways.items():
            taken, once, recorder = steps(model, batch, way, TOGETHER)
            if turn:
                seconds[name] += taken
        start = time.perf_counter()
        recorder.table()
        seconds["table"].append((time.perf_counter() - start) / TOGETHER)
        seconds["once"].append(once)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


@contextmanager
def plain_hooks(model: nn.Module) -> Iterator[None]:
    """Reduce every leaf module's output and its gradient as cheaply as hooks can."""
    kept: list[Any] = []

    def reduce(x: Tensor) -> None:
        kept.append((x.detach().sum(-1), torch.linalg.vector_norm(x.detach(), dim=-1), x.detach().aminmax()))

    def ran(module: nn.Module, args: Any, out: Tensor) -> None:
        reduce(out)
        out.register_hook(reduce)

    leaves = [module for module in model.modules() if not any(module.children())]
    handles = [module.register_forward_hook(ran) for module in leaves]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def profile(run: Callable[[], Any]) -> None:
    """Print the functions in which a recorded step spends most time."""
    run()
    with cProfile.Profile() as collected:
        for _ in range(5):
            run()
    pstats.Stats(collected).sort_stats("tottime").print_stats(22)


if __name__ == "__main__":
    main()
