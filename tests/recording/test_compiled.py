"""Models that are compiled before, while and after they are recorded."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import normlab as nl
from normlab.errors import RecordingError

# What the compiler itself warns of while it looks at a tensor that is no leaf.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

Make = Callable[..., nn.Module]


@pytest.fixture(autouse=True)
def _no_code_of_others() -> Iterator[None]:
    torch.compiler.reset()
    yield
    assert not forced()


def forced() -> bool:
    from torch._dynamo import eval_frame

    return bool(eval_frame._stance.stance == "force_eager")


def chain(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Tanh(), nn.Linear(6, 6)), nn.Linear(6, 6))


def x() -> torch.Tensor:
    return torch.randn((2, 5, 6), generator=torch.Generator().manual_seed(5))


def table(model: nn.Module, run: Callable[[], Any], **options: Any) -> pd.DataFrame:
    model.zero_grad()
    with nl.record(model, strict=True, **options) as recorder:
        run().square().sum().backward()
    return recorder.table()


def expected() -> pd.DataFrame:
    model = chain()
    return table(model, lambda: model(x()))


def wrapped(model: nn.Module) -> tuple[nn.Module, Callable[[], Any]]:
    compiled = torch.compile(model, backend="eager")
    return compiled, lambda: compiled(x())


def given_bare(model: nn.Module) -> tuple[nn.Module, Callable[[], Any]]:
    return model, wrapped(model)[1]


def in_place(model: nn.Module) -> tuple[nn.Module, Callable[[], Any]]:
    model.compile(backend="aot_eager")
    return model, lambda: model(x())


def a_part(model: nn.Module) -> tuple[nn.Module, Callable[[], Any]]:
    model[1] = torch.compile(model[1], backend="eager")
    model[2].compile(backend="eager")
    return model, lambda: model(x())


def a_function(model: nn.Module) -> tuple[nn.Module, Callable[[], Any]]:
    compiled = torch.compile(lambda given: model(given), backend="eager")
    return model, lambda: compiled(x())


def its_forward(model: nn.Module) -> tuple[nn.Module, Callable[[], Any]]:
    model.forward = torch.compile(model.forward, backend="eager")
    return model, lambda: model(x())


WAYS = (wrapped, given_bare, in_place, a_part, a_function, its_forward)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_compiled_models_have_every_row(way: Callable[..., Any], warm: bool) -> None:
    model, run = way(chain())
    if warm:
        run()
    pd.testing.assert_frame_equal(table(model, run), expected())


def test_code_that_was_compiled_before_runs_compiled_again() -> None:
    calls: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            calls.append(1)
            return graph(*args)

        return run

    model = chain()
    compiled = torch.compile(model, backend=backend)
    compiled(x())
    table(model, lambda: compiled(x()))
    assert len(calls) == 1
    compiled(x())
    assert len(calls) == 2


def test_steps_that_are_not_recorded_run_compiled() -> None:
    model = chain()
    model.compile(backend="eager")
    with nl.record(model, every=2) as recorder:
        seen = []
        for _ in range(4):
            seen.append(forced())
            model.zero_grad()
            model(x()).sum().backward()
            recorder.step()
    assert seen == [True, False, True, False]
    assert sorted(recorder.table()["step"].unique()) == [0, 2]


@pytest.mark.needs("compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_gives_the_rows_of_the_code_as_it_is_written() -> None:
    model = chain()
    compiled = torch.compile(model)
    compiled(x()).sum().backward()
    pd.testing.assert_frame_equal(table(compiled, lambda: compiled(x())), expected())


def test_recordings_that_overlap_leave_the_compiler_as_it_was() -> None:
    model = chain()
    model.compile(backend="eager")
    one, two = nl.record(model), nl.record(model)
    one.__enter__()
    two.__enter__()
    model(x()).sum().backward()
    one.__exit__(None, None, None)
    assert forced()
    two.__exit__(None, None, None)
    assert not forced()
    pd.testing.assert_frame_equal(one.table(), two.table())


def test_a_stance_of_the_user_comes_back() -> None:
    from torch._dynamo import eval_frame

    model, run = in_place(chain())
    with torch.compiler.set_stance("eager_on_recompile"):
        table(model, run)
        assert eval_frame._stance.stance == "eager_on_recompile"


def test_an_exception_lets_code_run_compiled_again() -> None:
    model, _ = in_place(chain())
    with pytest.raises(RuntimeError), nl.record(model):
        model(torch.ones(2, 3))


def test_a_block_inside_of_compiled_code_is_refused() -> None:
    model = chain()
    recorder = nl.record(model)

    def step(given: torch.Tensor) -> None:
        with recorder:
            model(given).sum().backward()

    with pytest.raises(RecordingError, match="compiled code is running.*before the with block"):
        torch.compile(step, backend="eager")(x())


def test_blocks_of_the_zoo_may_be_compiled(make: Make, batch: Any) -> None:
    def rows(*, compiled: bool) -> pd.DataFrame:
        model = make()
        blocks = model.stacks["decoder"].blocks
        if compiled:
            blocks[0] = torch.compile(blocks[0], backend="eager")
        with nl.record(model, strict=True) as recorder:
            model.loss(*batch).backward()
        return recorder.table()

    pd.testing.assert_frame_equal(rows(compiled=True), rows(compiled=False))


def test_a_compiled_model_of_the_zoo_has_its_plan(make: Make, batch: Any) -> None:
    model = torch.compile(make(), backend="eager")
    recorder = nl.record(model)
    assert {part.address.site for part in recorder.plan.observed} >= {"stream", "update", "branch"}
    with recorder:
        model.loss(*batch).backward()
    with nl.record(plain := make()) as bare:
        plain.loss(*batch).backward()
    pd.testing.assert_frame_equal(recorder.table(), bare.table())


def test_recording_in_a_thread_while_another_is_compiled() -> None:
    model, other = chain(), chain(1)
    other.compile(backend="eager")
    tables: list[pd.DataFrame] = []
    with nl.record(other) as recorder:
        thread = threading.Thread(target=lambda: tables.append(table(model, lambda: model(x()))))
        thread.start()
        other(x()).sum().backward()
        thread.join()
    pd.testing.assert_frame_equal(tables[0], expected())
    assert recorder.coverage()["observed"].all()
