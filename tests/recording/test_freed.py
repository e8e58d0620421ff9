"""Tensors whose storage was freed, or never was anywhere near."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import normlab as nl
from normlab.recording.odd import is_freed

FREED = "its memory was freed"


def free(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


def rows_of(model: nn.Module, after: Any = lambda: None, **options: Any) -> Any:
    with nl.record(model, **options) as recorder:
        model(torch.ones(2, 3, 8)).sum().backward()
        after()
    return recorder.table()


def test_storages_that_hold_less_than_their_tensors() -> None:
    tensor = torch.ones(4, 3)
    assert not is_freed(tensor) and not is_freed(tensor.mT) and not is_freed(tensor[4:]) and not is_freed(tensor[:, 1])
    assert not is_freed(torch.ones(1).expand(5)) and not is_freed(torch.empty(0)) and not is_freed(torch.tensor(1.0))
    view = tensor[1:]
    tensor.untyped_storage().resize_(11 * 4)
    assert is_freed(tensor) and is_freed(view) and not is_freed(tensor[:3]) and not is_freed(view[:, :2])


class Free(nn.Module):
    """Gives a tensor that begins somewhere in its storage, which holds nothing any more."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        flat = x.new_ones(self.offset + x.numel())
        result = flat[self.offset :].view(x.shape)
        free(flat)
        return result


class Branch(nn.Module):
    """Gives away the memory of a module's result before anybody else sees it."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self.a, self.b = Free(offset), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        self.a(x)
        result: Tensor = self.b(x)
        return result


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("offset", [0, 64])
def test_an_activation_says_that_its_memory_was_freed(offset: int) -> None:
    table = rows_of(Branch(offset))
    assert set(table.query("site == 'output' and name == 'a'")["status"]) == {FREED}
    assert set(table.query("site == 'output' and name == 'b' and quantity == 'rms'")["status"]) == {"ok"}


class Block(nn.Module):
    """Frees what it added to the stream, as Megatron does."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.mlp(self.norm(x))
        total = x + branch
        free(branch.data)
        return total


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.last = nn.ModuleList([Block(), Block()]), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        result: Tensor = self.last(x)
        return result


def test_a_term_of_a_sum_says_so() -> None:
    model = Net()
    plan = nl.discover(model, torch.randn(2, 3, 8)).plan
    assert plan is not None
    table = rows_of(model, sites=plan).query("quantity == 'update_ratio'")
    assert len(table) == 2 and table["value"].isna().all() and set(table["status"]) == {FREED}


@pytest.mark.parametrize("offset", [0, 64])
def test_a_parameter_says_so_and_its_gradient_is_there(offset: int) -> None:
    flat = torch.randn(offset + 64)
    model = nn.Linear(8, 8, bias=False)
    model.weight = nn.Parameter(flat[offset:].view(8, 8))
    rows = rows_of(model, lambda: free(flat)).query("name == 'weight'").set_index("quantity")
    assert np.isnan(rows.loc["param_rms", "value"]) and rows.loc["param_rms", "status"] == FREED
    assert rows.loc["grad_norm", "status"] == "ok"
    assert rows.loc["grad_norm", "value"] == pytest.approx(float(model.weight.grad.norm()))


@pytest.mark.parametrize("offset", [0, 64])
def test_a_gradient_says_so(offset: int) -> None:
    model, flat = nn.Linear(8, 8, bias=False), torch.ones(offset + 64)

    def freed() -> None:
        model.weight.grad = flat[offset:].view(8, 8)
        free(flat)

    rows = rows_of(model, freed).query("name == 'weight'").set_index("quantity")
    assert rows.loc["param_rms", "status"] == "ok"
    assert rows.loc["grad_norm", "status"] == rows.loc["nonfinite", "status"] == FREED


def test_a_model_of_fake_tensors_has_rows_that_say_so() -> None:
    with FakeTensorMode():
        table = rows_of(nn.Linear(8, 8))
    assert table["value"].isna().all() and set(table["status"]) == {"its numbers cannot be read: FakeTensor"}
