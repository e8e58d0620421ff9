"""A model that is compiled inside the block, and a pass after it that fails."""

from collections.abc import Callable

import pytest
import torch
import torch._dynamo  # what is compiled in a block for the first time in a process is refused, see test_compiled.py
from torch import Tensor, nn

import normlab as nl


class Fails(nn.Module):
    def forward(self, x: Tensor, fails: bool) -> Tensor:
        if fails:
            raise ValueError("no")
        return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), Fails()

    def forward(self, x: Tensor, fails: bool = False) -> Tensor:
        return self.second(self.first(x), fails)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_failed_pass_is_not_counted(compiled: bool, again: bool, value: Callable[..., float]) -> None:
    model, x = Model(), torch.ones(2, 3, 4)
    with nl.record(model) as recorder:
        model(x).sum().backward()
        if compiled:
            model.compile(backend="eager")
        with pytest.raises(ValueError, match="no"):
            model(x, True)
        if again:
            model(x).sum().backward()
    counted = value(recorder.table(), site="output", name="first", quantity="count")
    assert counted == (12 if again else 6)
