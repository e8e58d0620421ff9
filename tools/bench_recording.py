"""What recording costs: a recorded forward and backward pass against a bare one, as a ratio of medians.

    python tools/bench_recording.py                  # the two shapes that the documentation quotes
    python tools/bench_recording.py --steps 40
    python tools/bench_recording.py --profile        # where the time of a recorded step goes

Beside it stands what plain hooks cost that take a sum, a norm and the extremes of every leaf module's
output and gradient, and nothing else: it tells how dear a call is on this machine. Bare, hooked and
recorded steps alternate in one process on one thread, so that other load meets all alike.
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

SHAPES = ((12, 384, 6), (24, 128, 4))
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
            profile(lambda model=model, batch=batch: step(model, batch, nl.record))
        medians, table = measure(model, batch, ways, options.steps)
        ratios = ", ".join(f"{way} {seconds / medians['bare']:.3f}" for way, seconds in medians.items())
        print(
            f"L={depth} d={width} B=4 n=128 {options.placement}, {medians['bare'] * 1e3:.0f} ms a bare step: "
            f"{ratios}; table {table * 1e3:.0f} ms"
        )


def step(model: Any, batch: tuple[Tensor, Tensor], way: Callable[[nn.Module], AbstractContextManager[Any]]) -> Any:
    """Run one forward and backward pass, and return what the context gives."""
    model.zero_grad(set_to_none=True)
    with way(model) as recorder:
        model.loss(*batch).backward()
    return recorder


def measure(model: Any, batch: tuple[Tensor, Tensor], ways: Ways, steps: int) -> tuple[dict[str, float], float]:
    """Return the median seconds of each kind of step, and of a table."""
    seconds: dict[str, list[float]] = {way: [] for way in [*ways, "table"]}
    for _ in range(steps + 2):
        for name, way in ways.items():
            start = time.perf_counter()
            recorder = step(model, batch, way)
            seconds[name].append(time.perf_counter() - start)
        start = time.perf_counter()
        recorder.table()
        seconds["table"].append(time.perf_counter() - start)
    medians = {name: statistics.median(taken[2:]) for name, taken in seconds.items()}
    return {name: medians[name] for name in ways}, medians["table"]


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
