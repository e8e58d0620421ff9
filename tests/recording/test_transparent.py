"""Recording changes no bit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.errors import RecordingError
from normlab.recording import Transparency, observer


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

    monkeypatch.setattr(observer.Awaiting, "__call__", lambda self, gradient: spoil(gradient))
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
    @dataclass
    class Out:
        x: Tensor

    class Wraps(nn.Linear):
        def forward(self, input: Tensor) -> Any:
            return Out(super().forward(input))

    with pytest.raises(RecordingError, match="Wraps returned no tensor that could be compared"):
        nl.check_transparent(Wraps(3, 3), torch.ones(2, 3), repeats=1)


def test_an_output_that_later_passes_write_over_is_kept() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.total.add_(x.detach())

    with pytest.raises(RecordingError, match="the output 0 differs between two runs without recording"):
        nl.check_transparent(Adds(), torch.ones(2, 3), repeats=1)
