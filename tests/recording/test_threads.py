"""Recordings in threads: each sees what its own thread runs, whatever others do meanwhile."""

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import normlab as nl
from normlab.recording import RecordingWarning


def chain(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))


def x(seed: int = 5) -> Tensor:
    return torch.randn((2, 5, 6), generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def hasty() -> Iterator[None]:
    """Let threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*runs: Callable[[], Any]) -> list[Any]:
    found: list[Any] = [None] * len(runs)
    barrier = threading.Barrier(len(runs))

    def start(place: int, run: Callable[[], Any]) -> None:
        barrier.wait()
        found[place] = run()

    threads = [threading.Thread(target=start, args=one) for one in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.usefixtures("hasty")
def test_models_of_other_threads_do_not_disturb() -> None:
    def recorded(model: nn.Module) -> pd.DataFrame:
        with nl.record(model) as recorder:
            for number in range(20):
                model(x(number)).square().sum().backward()
        return recorder.table()

    alone = [recorded(chain(seed)) for seed in range(3)]
    models = [chain(seed) for seed in range(3)]
    for one, other in zip(alone, together(*(partial(recorded, model) for model in models)), strict=True):
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.usefixtures("hasty")
def test_one_model_in_two_threads_is_recorded_apart() -> None:
    def recorded(model: nn.Module, seed: int) -> pd.DataFrame:
        with nl.record(model) as recorder, torch.no_grad():
            for number in range(20):
                model(x(100 * seed + number))
        return recorder.table()

    model = chain()
    model[1].register_forward_hook(lambda module, args, out: 2 * out)
    alone = [recorded(model, seed) for seed in range(2)]
    for one, other in zip(alone, together(*(partial(recorded, model, seed) for seed in range(2))), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_what_another_thread_runs_is_not_recorded() -> None:
    model = chain()
    with pytest.warns(RecordingWarning, match="nothing of the model ran"), nl.record(model) as recorder:
        together(lambda: model(x()))
    assert not recorder.coverage()["observed"].any()


def test_a_backward_pass_in_another_thread_still_counts() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = chain(0), chain(1)

        def forward(self, given: Tensor) -> Tensor:
            return checkpoint(self.two, self.one(given), use_reentrant=False)

    tables = []
    for backward in (lambda loss: loss.backward(), lambda loss: together(loss.backward)):
        model = Halves()
        with nl.record(model) as recorder:
            backward(model(x()).square().sum())
        tables.append(recorder.table())
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_forward_pass_while_the_one_before_runs_backward_in_another_thread(dtype: torch.dtype) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20))).to(dtype)
    given = [torch.randn((2, 100, 64), generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(40)]
    columns = ["name", "quantity", "value"]
    tables = []
    for ahead in (False, True):
        model.zero_grad()
        running: list[threading.Thread] = []
        with nl.record(model, sites=["output_grad"]) as recorder:
            for one in given:
                loss = model(one).square().sum()
                if running:
                    running.pop().join()
                running.append(threading.Thread(target=loss.backward))
                running[0].start()
                if not ahead:
                    running.pop().join()
            if running:
                running.pop().join()
        tables.append(recorder.table()[columns])
    pd.testing.assert_frame_equal(tables[0], tables[1], rtol=1e-9)
