"""Copies of recorded modules, modules compiled or called by others meanwhile, and hooks that come and go."""

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from recorded_parts import SLOT, Scaled, draw
from torch import nn
from torch.utils.checkpoint import checkpoint

import normlab as nl
from normlab.errors import RecordingError

pytestmark = pytest.mark.usefixtures("each_way")


def x() -> torch.Tensor:
    return draw(2, 3, 4, seed=0)


def largest(table: pd.DataFrame, name: str) -> list[float]:
    rows = table[(table["name"] == name) & (table["quantity"] == "max_abs") & table["value"].notna()]
    return rows.sort_values("step")["value"].tolist()


def size(tensor: torch.Tensor) -> Any:
    return pytest.approx(float(tensor.abs().max()), rel=1e-4)


def by_dictionary(module: nn.Module) -> nn.Module:
    """What libraries of meta-learning do: a copy that shares all but its parameters."""
    copied = type(module).__new__(type(module))
    copied.__dict__ = dict(module.__dict__)
    copied._parameters = {"weight": nn.Parameter(torch.tensor([7.0]))}
    return copied


def replicated(module: Any) -> nn.Module:
    copied: nn.Module = module._replicate_for_data_parallel()
    copied.weight = torch.tensor([7.0], requires_grad=True)
    return copied


@pytest.mark.parametrize("made", [by_dictionary, replicated])
def test_a_copy_that_shares_everything_runs_itself_in_the_same_thread(made: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(Scaled(2.0), Scaled(3.0))
    with nl.record(model) as recording:
        model(x())
        assert torch.equal(made(model[0])(x()), x() * 7)
    assert largest(recording.table(), "0") == [size(x() * 2)]


class Copying(nn.Module):
    """Adds what a copy of its module makes of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Scaled(2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + by_dictionary(self.a)(x)


def test_a_copy_that_runs_inside_of_the_model_is_not_recorded() -> None:
    model = Copying()
    with nl.record(model) as recording:
        assert torch.allclose(model(x()), x() * 9)
    assert largest(recording.table(), "a") == [size(x() * 2)]


def test_a_checkpointed_replica_repeats_itself() -> None:
    model = nn.Sequential(Scaled(2.0), Scaled(3.0))
    with nl.record(model):
        model(x())
        replica: Any = replicated(model[0])

        def run() -> None:
            checkpoint(replica, given, use_reentrant=True).sum().backward()

        given = x().requires_grad_()
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert given.grad is not None and torch.equal(given.grad, torch.full_like(given, 7.0))
    assert model[0].weight.grad is None and replica.weight.grad is not None


def test_a_copy_of_a_recorded_module_can_be_recorded_too() -> None:
    model = Scaled(2.0)
    with nl.record(model) as first:
        model(x())
        copied = by_dictionary(model)
        with nl.record(copied) as second:
            copied(x())
    assert largest(first.table(), "") == [size(x() * 2)]
    assert largest(second.table(), "") == [size(x() * 7)]


def test_a_module_that_is_compiled_in_the_block_is_heard_again() -> None:
    model = nn.Sequential(Scaled(2.0), Scaled(3.0))
    with nl.record(model) as recording:
        model(x())
        model[0].compile(backend="eager")
        mine = model[0].__dict__[SLOT]
        model(9 * x())
    assert largest(recording.table(), "0") == [size(18 * x())]
    assert model[0].__dict__[SLOT] is mine


class Hookless(Scaled):
    """Takes all hooks off itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._forward_hooks = OrderedDict()
        return x * self.weight


def test_a_module_may_take_its_hooks_off() -> None:
    model = nn.Sequential(Hookless(2.0), Scaled(3.0))
    model[0].register_forward_pre_hook(lambda module, args: None)
    with nl.record(model) as recording:
        assert torch.equal(model(x()), x() * 6)
    assert largest(recording.table(), "0") == [size(x() * 2)]


def test_a_refused_pass_is_over() -> None:
    model = nn.Sequential(Scaled(2.0), Scaled(3.0))
    with nl.record(model) as recording:
        model(x())
        with torch.no_grad():
            model[0].weight.mul_(2)
        with pytest.raises(RecordingError, match="changed"):
            model(x())
        assert recording._attachment.running == 0


def hooked(model: nn.Sequential) -> nn.Sequential:
    for module in model:
        module.register_full_backward_pre_hook(lambda module, gradient: None)
    return model


@pytest.mark.parametrize("prepared", [nn.Module.train, hooked])
def test_many_threads_record_one_model_apart(prepared: Callable[[nn.Sequential], nn.Sequential]) -> None:
    model = prepared(nn.Sequential(*(Scaled(1.5) for _ in range(6))))
    wrong: list[Any] = []

    def run(factor: int) -> None:
        for _ in range(40):
            with nl.record(model) as recording:
                model(x() * factor)
            table = recording.table()
            found = [largest(table, str(depth)) for depth in range(6)]
            if found != [[size(x() * factor * 1.5 ** (depth + 1))] for depth in range(6)]:
                wrong.append(found)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(factor,)) for factor in (1, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_a_copy_runs_itself_though_what_it_was_copied_from_was_compiled_since() -> None:
    model = nn.Sequential(Scaled(2.0), Scaled(1.0))
    model[0].compile(backend="eager")
    with nl.record(model) as recorder, torch.no_grad():
        model(x())
        recorder.step()
        model[1] = by_dictionary(model[0])
        model[0].compile(backend="eager")
        assert torch.equal(model(x()), x() * 2 * 7)
