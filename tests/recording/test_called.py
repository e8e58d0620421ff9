"""What stands in place of a module's call while it is recorded, and what is left of it."""

import copy
import gc
import io
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from recorded_parts import SLOT, Scaled, draw, heard
from torch import nn
from torch.nn.modules import module as torch_module

import normlab as nl

pytestmark = pytest.mark.usefixtures("each_way")


class Careless(Scaled):
    """Gives away all that it has when it is copied."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__


def x() -> torch.Tensor:
    return draw(2, 3, 4, seed=0)


def largest(table: pd.DataFrame, name: str) -> list[float]:
    rows = table[(table["name"] == name) & (table["quantity"] == "max_abs") & (table["site"] == "output")]
    return rows.sort_values("call")["value"].tolist()


def size(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max())


def recorded(model: nn.Module, run: Callable[[], Any]) -> pd.DataFrame:
    model.zero_grad()
    with nl.record(model) as recording:
        run()
    assert not heard(model)
    return recording.table()


def test_nothing_is_put_on_the_process_or_left_on_the_model() -> None:
    model = nn.Sequential(Scaled(2.0), nn.Dropout(0.0))
    with nl.record(model):
        model(x())
        assert heard(model) == ["", "0", "1"] and not torch_module._has_any_global_hook()
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not heard(model)


def deep(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def shallow(model: nn.Module) -> nn.Module:
    return copy.copy(model)


def saved(model: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


@pytest.mark.parametrize("kind", [Scaled, Careless])
@pytest.mark.parametrize("made", [deep, shallow, saved])
def test_a_copy_of_a_recorded_module_runs_itself_and_is_not_recorded(made: Any, kind: type[Scaled]) -> None:
    model = nn.Sequential(kind(2.0))
    with nl.record(model) as recording:
        model(x())
        other = made(model[0])
        other._parameters = {"weight": nn.Parameter(torch.tensor([7.0]))}
        assert torch.equal(other(x()), x() * 7)
    assert largest(recording.table(), "0") == [size(x() * 2)]


def test_a_replica_that_another_thread_runs_runs_itself() -> None:
    model = nn.Sequential(Scaled(2.0))
    found = []
    with nl.record(model) as recording:
        model(x())
        replica = model[0]._replicate_for_data_parallel()
        replica.weight = torch.tensor([7.0])
        thread = threading.Thread(target=lambda: found.append(replica(x())))
        thread.start()
        thread.join()
    assert torch.equal(found[0], x() * 7)
    assert largest(recording.table(), "0") == [size(x() * 2)]


@pytest.mark.parametrize("first", [0, 1])
def test_two_recordings_may_end_in_any_order(first: int) -> None:
    model = nn.Sequential(Scaled(2.0))
    both = [nl.record(model), nl.record(model)]
    for recording in both:
        recording.__enter__()
    model(x())
    both[first].__exit__(None, None, None)
    model(10 * x())
    both[1 - first].__exit__(None, None, None)
    assert not heard(model)
    assert largest(both[first].table(), "0") == [size(x() * 2)]
    assert max(largest(both[1 - first].table(), "0")) == pytest.approx(size(20 * x()))


def test_what_was_compiled_stays_so() -> None:
    model = nn.Sequential(Scaled(2.0))
    model[0].compile(backend="eager")
    before = model[0].__dict__[SLOT]
    with nl.record(model):
        model(x())
        assert model[0].__dict__[SLOT] is not before
    assert model[0].__dict__[SLOT] is before


def test_a_model_that_is_compiled_in_the_block_is_heard_again() -> None:
    model = nn.Sequential(Scaled(2.0))
    model.compile(backend="eager")
    with nl.record(model) as recording:
        model(x())
        model.compile(backend="eager")
        mine = model.__dict__[SLOT]
        model(3 * x())
        model(4 * x())
    rows = recording.table()
    assert model.__dict__.get(SLOT) is mine
    # Three micro-batches of one step.
    tokens = rows[(rows["name"] == "0") & (rows["quantity"] == "mean_square")]
    expected = (torch.cat([x(), 3 * x(), 4 * x()]) * 2).double().square().mean()
    assert tokens["value"].tolist() == pytest.approx([float(expected)])


def test_arguments_are_those_that_hooks_made_of_them() -> None:
    model = nn.Sequential(Scaled(2.0), Scaled(3.0))
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 5,))
    model[1].register_forward_hook(lambda module, args, result: result * 7)
    model[1].register_full_backward_hook(lambda module, into, out: None)
    given = x().requires_grad_()
    table = recorded(model, lambda: model(given).sum().backward())
    assert largest(table, "0") == [pytest.approx(size(x() * 10))]
    assert largest(table, "1") == [pytest.approx(size(x() * 210))]
    assert not model[0]._forward_hooks and len(model[1]._forward_hooks) == 1


def test_process_wide_hooks_of_others_are_seen_through() -> None:
    model = nn.Sequential(Scaled(2.0))
    handles = [
        torch_module.register_module_forward_pre_hook(
            lambda module, args: (args[0] * 5,) if isinstance(module, Scaled) else None
        ),
        torch_module.register_module_forward_hook(
            lambda module, args, result: result * 7 if isinstance(module, Scaled) else None
        ),
    ]
    try:
        table = recorded(model, lambda: model(x()))
    finally:
        for handle in handles:
            handle.remove()
    assert largest(table, "0") == [pytest.approx(size(x() * 70))]


class Nested(Scaled):
    """Runs itself once more before it multiplies."""

    def forward(self, x: torch.Tensor, again: bool = False) -> torch.Tensor:
        return (self(x, again=True) if not again else x) * self.weight


@pytest.mark.parametrize("hooked", [False, True])
def test_a_module_that_calls_itself_has_a_row_a_call(hooked: bool) -> None:
    model = nn.Sequential(Nested(2.0))
    if hooked:
        model[0].register_forward_pre_hook(lambda module, args: None)
    table = recorded(model, lambda: model(x()))
    assert sorted(largest(table, "0")) == pytest.approx([size(x() * 2), size(x() * 4)])


class Stopped(Scaled):
    """Is interrupted."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt


def test_nothing_is_left_after_an_interrupt() -> None:
    model = nn.Sequential(Scaled(2.0), Stopped(2.0))
    model[1].register_forward_pre_hook(lambda module, args: None)
    with pytest.raises(KeyboardInterrupt), nl.record(model):
        model(x())
    assert not heard(model) and not model[1]._forward_hooks


@pytest.mark.parametrize("reached", [False, True])
def test_a_recording_that_is_given_up_goes_with_its_model(reached: bool) -> None:
    model = nn.Sequential(Scaled(2.0))
    recording = nl.record(model).__enter__()
    model(x())
    if reached:
        model.recordings = [recording]
    gone = weakref.ref(recording), weakref.ref(model)
    del model, recording
    gc.collect()
    assert [one() for one in gone] == [None, None]


@pytest.mark.filterwarnings("ignore:.*found no gradient")
def test_a_step_may_end_while_the_model_runs() -> None:
    class Stepping(Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            recording.step()
            return x * self.weight

    model = nn.Sequential(Scaled(2.0), Stepping(1.0), Scaled(3.0))
    with nl.record(model) as recording:
        model(x())
        assert recording._attachment.running == 0
        model(5 * x())
    first, second = (recording.table().query(f"step == {step}") for step in (0, 1))
    assert largest(first, "0") == [size(x() * 2)]
    assert size(x() * 6) in largest(second, "2") and size(x() * 10) in largest(second, "0")


FIRST = """
import torch
import normlab as nl
from normlab.errors import RecordingError
from torch import nn
model = nn.Sequential(nn.Linear(4, 4))
assert "torch._dynamo" not in __import__("sys").modules
try:
    with nl.record(model) as recording:
        torch.compile(lambda x: model(x).sum(), backend="eager")(torch.ones(2, 3, 4))
        END
except RecordingError as error:
    print(error)
"""


@pytest.mark.parametrize("end", ["recording.step()", "pass"])
def test_code_that_is_compiled_for_the_first_time_in_the_block_is_refused(end: str) -> None:
    ran = subprocess.run([sys.executable, "-c", FIRST.replace("END", end)], capture_output=True, text=True)
    assert "call torch.compile before the with block" in ran.stdout, ran.stderr[-400:]
