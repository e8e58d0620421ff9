"""Recording changes no bit."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.errors import RecordingError
from normlab.recording import Transparency, awaiting
from normlab.recording.memory import meter_of


@pytest.mark.parametrize("fields", [{}, {"placement": "peri", "dropout": 0.2}, {"placement": "post", "bias": True}])
def test_no_bit_of_zoo_models_changes(fields: dict[str, Any], make: Callable[..., nn.Module], batch: Any) -> None:
    model = make(**fields)
    found = nl.check_transparent(model, batch, repeats=1)
    assert isinstance(found, Transparency) and found.gradients == len(list(model.parameters()))
    assert found.time_ratio > 0 and "changes no bit" in str(found)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_inputs_buffers_and_gradients_of_any_model() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.BatchNorm1d(4), nn.Dropout(0.5))
    model[0].weight.grad = torch.ones(4, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = nl.check_transparent(model, torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), repeats=1)
    assert found.outputs == 1 and found.gradients == 5
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.ones(4, 4))


def test_a_recorder_that_changes_something_is_found(
    make: Callable[..., nn.Module], batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(gradient: Tensor) -> Tensor:
        return gradient * (1 + 2**-23)

    monkeypatch.setattr(awaiting.Awaiting, "__call__", lambda self, gradient: spoil(gradient))
    with pytest.raises(RecordingError, match="recording changes the gradient of"):
        nl.check_transparent(make(), batch, repeats=1)


def test_a_model_that_is_not_deterministic_is_said() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.calls = nn.Parameter(torch.ones(())), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.w * self.calls

    with pytest.raises(RecordingError, match="without recording"):
        nl.check_transparent(Counts(), torch.ones(2, 3), repeats=1)


def test_a_model_of_which_nothing_can_be_compared_is_refused() -> None:
    class Wraps(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            return object()

    with pytest.raises(RecordingError, match="Wraps returned no tensor that could be compared"):
        nl.check_transparent(Wraps(3, 3), torch.ones(2, 3), repeats=1)


def test_outputs_in_any_structure() -> None:
    @dataclass
    class Out:
        x: Tensor
        rest: dict[str, list[Tensor]]

    class Wraps(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            x = super().forward(input)
            return Out(x, {"more": [2 * x]})

    assert nl.check_transparent(Wraps(3, 3), torch.ones(2, 3), repeats=1).outputs == 2


def test_an_output_that_later_passes_write_over_is_kept() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.total.add_(x.detach())

    with pytest.raises(RecordingError, match="the output 0 differs between two runs without recording"):
        nl.check_transparent(Adds(), torch.ones(2, 3), repeats=1)


class Compiled(nn.Sequential):
    """A chain that a backend compiles."""

    def __init__(self, backend: Any) -> None:
        super().__init__(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        self.compile(backend=backend)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input)


def test_a_compiled_model_is_compared_to_rounding() -> None:
    found = nl.check_transparent(Compiled("aot_eager"), torch.ones(2, 3), repeats=1)
    assert found.gradients == 5 and found.difference < 1e-6


def test_a_backend_that_changes_more_than_rounding_is_named() -> None:
    model = Compiled(lambda graph, inputs: lambda *args: tuple(1.01 * one for one in graph(*args)))
    with pytest.raises(RecordingError, match="compiled code changes the output 0 by .*record it before"):
        nl.check_transparent(model, torch.ones(2, 3), repeats=1)


class Keeps(nn.Module):
    """Keeps ten times a million floats for the backward pass, and needs two more at its end."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(10):
            x = x.exp()
        return x.sum()


def test_memory_is_what_torch_numpy_and_python_hold() -> None:
    x = torch.zeros(1000, 250).requires_grad_()
    with meter_of(model := Keeps()) as meter:
        loss = model(x)
        meter.mark()
        loss.backward()
    # Ten results; the backward pass begins with the gradient of the last and that of its input.
    assert meter.found.after_forward == pytest.approx(10e6, rel=1e-3)
    assert 11e6 <= meter.found.peak <= 12.1e6
    with meter_of(model) as meter:
        kept = [np.ones(10**6), bytes(10**6)]
        meter.mark()
    assert kept and meter.found.peak == pytest.approx(9e6, rel=1e-2)


def test_a_moderate_model_needs_less_than_a_hundredth_more_memory() -> None:
    model = nl.build(nl.ModelSpec(depth=12, width=384, heads=6))
    found = nl.check_transparent(model, nl.data.random_batch(batch=4, tokens=128), repeats=1)
    assert found.activation_bytes > 12 * 12 * 4 * 128 * 384 * 4
    assert 0 <= found.memory_share < 0.01
    assert "% of the activations" in str(found)


class Rebinding(nn.Module):
    """Puts another buffer in the place of its own, and reads a tensor within a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, given: Any) -> torch.Tensor:
        self.runs = self.runs + 1
        return self.linear(given["x"] if isinstance(given, dict) else given)


def test_buffers_that_are_replaced_and_tensors_within_a_batch_are_as_before() -> None:
    model, x = Rebinding(), torch.ones((2, 4, 3), requires_grad=True)
    buffer = model.runs
    nl.check_transparent(model, ({"x": x},), repeats=1)
    assert model.runs is buffer and float(buffer) == 0 and x.grad is None
    nl.discover(model, x.detach())
    assert model.runs is buffer and float(buffer) == 0


def test_the_memory_of_a_first_call_is_that_of_a_second() -> None:
    code = (
        "import torch, normlab as nl; torch.set_num_threads(1);"
        "model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32));"
        "print(*(nl.check_transparent(model, torch.ones(2, 8, 32), repeats=1).memory_share for _ in range(2)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = map(float, ran.stdout.split())
    assert first >= 0 and first == pytest.approx(second, abs=0.1)
