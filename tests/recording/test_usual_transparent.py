"""Recording changes no bit of numbers of other kinds, and of losses of other forms."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.errors import RecordingError
from normlab.recording import transparent


class Rotates(nn.Module):
    """A complex parameter, a real and a complex result."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * self.turn
        return y.conj(), y.real


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_complex_numbers(dtype: torch.dtype) -> None:
    found = nl.check_transparent(Rotates(), torch.ones(3, 4, dtype=dtype), repeats=1)
    assert (found.outputs, found.gradients) == (2, 2)


def test_sparse_gradients_and_results() -> None:
    class Model(nn.Embedding):
        def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:
            found = super().forward(input)
            return found, found.to_sparse()

    found = nl.check_transparent(Model(5, 3, sparse=True), torch.tensor([[1, 4, 1]]), repeats=1)
    assert (found.outputs, found.gradients) == (2, 1)


class Losing(nn.Linear):
    """A loss of a form of its own."""

    kind = "tuple"

    def loss(self, x: Tensor) -> Any:
        y = self(x)
        return {"tuple": (y.square().mean(), y), "vector": y.square().mean(-1)}[self.kind]


@pytest.mark.parametrize(("kind", "outputs"), [("tuple", 2), ("vector", 1)])
def test_a_loss_that_is_no_number(kind: str, outputs: int) -> None:
    model = Losing(3, 3)
    model.kind = kind
    found = nl.check_transparent(model, torch.ones(2, 3), repeats=1)
    assert (found.outputs, found.gradients) == (outputs, 3)


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.functional.mse_loss])
def test_a_loss_of_a_result_and_a_target_is_not_that_of_the_batch(loss: Any) -> None:
    class Model(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 3)
            self.loss = loss

    assert nl.check_transparent(Model(), torch.ones(2, 3), repeats=1).gradients == 3


def test_a_model_without_numbers_says_so() -> None:
    with pytest.raises(RecordingError, match="has no numbers, on the device meta"):
        nl.check_transparent(nn.Linear(3, 3, device="meta"), torch.ones(2, 3, device="meta"), repeats=1)


def test_tensors_at_keys_that_print_alike_are_two() -> None:
    class Model(nn.Linear):
        def forward(self, input: Tensor) -> dict[Any, Any]:
            y = super().forward(input)
            return {"a.b": y, "a": {"b": 2 * y}, 0: 3 * y, "0": 4 * y}

    assert nl.check_transparent(Model(3, 3), torch.ones(2, 3), repeats=1).outputs == 4


def test_bits_are_compared_not_values() -> None:
    one = torch.tensor([0.0, float("nan")])
    assert transparent._same_bits(one, one.clone()) and not transparent._same_bits(one, torch.tensor([-0.0, 1.0]))
    two = one.to_sparse()
    assert transparent._same_bits(two, two.clone()) and not transparent._same_bits(one, two)
