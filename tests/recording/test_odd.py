"""Parameters whose entries are no dense real numbers, or cannot be read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import normlab as nl
from normlab.recording import Address, Parameter, SitePlan
from normlab.recording.odd import odd_size

RNG = torch.Generator().manual_seed(0)
DENSE = torch.randn(6, 4, generator=RNG)


def rows_of(parameter: torch.Tensor, gradient: torch.Tensor | None = None, **options: Any) -> Any:
    """Return the rows of a parameter of a module that does not use it."""
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_parameter("p", parameter)
    with nl.record(model, **options) as recorder:
        model(torch.ones(2, 3, 4)).sum().backward()
        parameter.grad = gradient
    table = recorder.table()
    assert table.query("name == '0.weight' and quantity in ('grad_norm', 'param_rms')")["status"].tolist() == ["ok"] * 2
    assert (table.query("site == 'output' and quantity == 'rms'")["status"] == "ok").all()
    return table.query("name == '0.p'").set_index("quantity")


def constant(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


STORED: dict[str, Callable[[], torch.Tensor]] = {
    "complex": lambda: torch.complex(DENSE, DENSE.flip(0)),
    "conjugate": lambda: torch.complex(DENSE, DENSE.flip(0)).conj(),
    "int8": lambda: (DENSE * 40).to(torch.int8),
    "int64": lambda: (DENSE * 1000).long(),
    "bool": lambda: DENSE > 0,
    "float8": lambda: DENSE.to(torch.float8_e4m3fn),
    "sparse": lambda: (DENSE * (DENSE > 0)).to_sparse(),
    "not coalesced": lambda: torch.sparse_coo_tensor(torch.tensor([[1, 1], [2, 2]]), torch.tensor([1.0, 2.0]), (6, 4)),
    "rows": lambda: (DENSE * (DENSE > 0)).to_sparse_csr(),
    "columns": lambda: (DENSE * (DENSE > 0)).to_sparse_csc(),
    "blocks": lambda: (DENSE * (DENSE > 0)).to_sparse_bsr((2, 2)),
}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("case", STORED)
def test_sizes_of_every_kind_of_number(case: str) -> None:
    tensor = STORED[case]()
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    expected = float(dense.to(torch.complex128).abs().square().mean().sqrt())
    found = rows_of(constant(tensor)).loc["param_rms"]
    assert found["value"] == pytest.approx(expected, rel=1e-12) and found["status"] == "ok"


@pytest.mark.parametrize("case", ["complex", "int8", "sparse", "rows"])
def test_parts_of_them(case: str) -> None:
    tensor = STORED[case]()
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    (entries, squares, bad), reason = odd_size(tensor, Parameter("p", Address(), "", (1, 4)))
    expected = float(dense[1:4].to(torch.complex128).abs().square().sum())
    assert (entries, bad, reason) == (12, 0, "") and squares == pytest.approx(expected, rel=1e-12)


def test_entries_of_complex_numbers_that_are_not_finite_are_left_out() -> None:
    tensor = torch.tensor([3 + 4j, complex("nan"), complex(0, float("inf")), 0])
    found = rows_of(constant(tensor)).loc["param_rms"]
    assert found["value"] == pytest.approx(12.5**0.5) and found["status"] == "nonfinite"


def test_gradients_of_complex_parameters() -> None:
    tensor = torch.complex(DENSE, DENSE.flip(0))
    found = rows_of(nn.Parameter(tensor), tensor * 2).loc["grad_norm"]
    assert found["value"] == pytest.approx(2 * float(tensor.abs().double().norm())) and found["status"] == "ok"


class Refuses(torch.Tensor):
    """A tensor that lets nobody compute with it."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return hidden()
        raise TypeError("no")


def hidden() -> torch.Tensor:
    return torch.Tensor._make_wrapper_subclass(Refuses, (3, 2))


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(3, 2)


UNREAD: dict[str, Callable[[], Any]] = {
    "meta": lambda: constant(torch.ones(3, 2, device="meta")),
    "not initialised": lambda: nn.UninitializedParameter(requires_grad=False),
    "FakeTensor": lambda: constant(fake()),
    "Refuses": lambda: constant(hidden()),
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_cannot_be_read_says_so_and_the_rest_is_there(case: str) -> None:
    found = rows_of(UNREAD[case]())
    assert np.isnan(found.loc["param_rms", "value"])
    assert found.loc["param_rms", "status"] == f"its numbers cannot be read: {case}"
    assert found.loc["grad_norm", "status"] == "frozen"


def test_gradients_that_cannot_be_read_say_so() -> None:
    parameter = nn.Parameter(torch.ones(3, 2, device="meta"))
    found = rows_of(parameter, torch.ones(3, 2, device="meta"))
    assert found["value"].isna().all() and set(found["status"]) == {"its numbers cannot be read: meta"}


def test_a_role_of_several_says_which_of_them_cannot_be_read() -> None:
    model = nn.Module()
    model.v, model.w = constant(torch.full((4,), 3.0)), constant(torch.ones(4, device="meta"))
    plan = SitePlan(parameters=tuple(Parameter(name, Address("a", 1), name) for name in ("v", "w")))
    with nl.record(model, sites=plan) as recorder:
        pass
    found = recorder.table().query("quantity == 'param_rms'").set_index("role")
    assert (
        found.loc["all", "value"] == 3 and found.loc["all", "status"] == "without w (its numbers cannot be read: meta)"
    )
    assert found.loc["v", "status"] == "ok" and found.loc["w", "status"] == "its numbers cannot be read: meta"


def test_a_lazy_module_that_gets_its_parameters_in_the_first_step() -> None:
    model = nn.LazyLinear(4)
    with nl.record(model) as recorder:
        model(torch.ones(2, 3, 4)).sum().backward()
    rows = recorder.table().query("name == 'weight'").set_index("quantity")
    assert (rows["status"] == "ok").all()
    assert rows.loc["grad_norm", "value"] == pytest.approx(float(model.weight.grad.norm()))
