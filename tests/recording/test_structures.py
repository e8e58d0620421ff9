"""Inputs and outputs of any structure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from recorded_parts import Makes, Value, draw
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Observed, Port, SitePlan


@dataclass
class Record:
    hidden: Tensor
    rest: dict[str, Any]


class Pair(NamedTuple):
    hidden: Tensor
    weights: Tensor | None


def as_record(x: Tensor) -> Any:
    return Record(x, {"more": [None, 2 * x], "tokens": torch.ones(3, dtype=torch.int64)})


def as_pair(x: Tensor) -> Any:
    return Pair(x, None)


def as_nested(x: Tensor) -> Any:
    return {"states": ({"hidden": x}, [3 * x]), "loss": None}


class Gives(nn.Module):
    def __init__(self, shape: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.w, self.shape = nn.Parameter(torch.eye(6)), shape

    def forward(self, *, hidden_states: Tensor) -> Any:
        return self.shape(hidden_states @ self.w)


class Model(nn.Module):
    def __init__(self, shape: Callable[[Tensor], Any], take: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.block, self.take = Gives(shape), take

    def forward(self, x: Tensor) -> Tensor:
        return self.take(self.block(hidden_states=x))


def x() -> Tensor:
    return draw(2, 5, 6)


CASES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor], dict[str, float]]] = {
    "dataclass": (as_record, lambda out: out.hidden, {"block[hidden]": 1.0, "block[rest.more.1]": 2.0}),
    "named tuple": (as_pair, lambda out: out.hidden, {"block[0]": 1.0}),
    "nested": (
        as_nested, lambda out: out["states"][0]["hidden"], {"block[states.0.hidden]": 1.0, "block[states.1.0]": 3.0}
    ),
    "tuple": (lambda x: (x,), lambda out: out[0], {"block[0]": 1.0}),
    "tensor": (lambda x: x, lambda out: out, {"block": 1.0}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_of_a_result_has_rows(case: str, value: Value) -> None:
    shape, take, expected = CASES[case]
    model = Model(shape, take)
    with nl.record(model) as recorder:
        model(x()).square().sum().backward()
    table, size = recorder.table(), float(x().double().square().mean().sqrt())
    assert set(table[table["site"] == "output"]["name"]) == set(expected)
    for name, factor in expected.items():
        assert value(table, name=name, site="output", quantity="rms") == pytest.approx(factor * size, rel=1e-6)
    first = next(iter(expected))
    gradient = 2 * float(x().double().norm())
    assert value(table, name=first, site="output_grad", quantity="l2") == pytest.approx(gradient, rel=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_coverage_names_what_is_there_and_nothing_else(case: str) -> None:
    shape, take, expected = CASES[case]
    with nl.record(model := Model(shape, take)) as recorder:
        model(x()).sum().backward()
    coverage = recorder.coverage().query("site == 'output'")
    assert set(coverage["name"]) == set(expected) and coverage["observed"].all()


def test_a_result_that_changes_its_structure_is_not_mixed(value: Value) -> None:
    model = Model(lambda x: x, lambda out: out)
    with nl.record(model) as recorder:
        model(x())
        model.block.shape, model.take = as_pair, lambda out: out.hidden
        model(x())
    table = recorder.table()
    for name in ("block", "block[0]"):
        assert value(table, name=name, site="output", quantity="count") == 10


class Block(nn.Module):
    """Gives a tensor in one version of its library and a tuple of it in another."""

    def __init__(self, *, as_tuple: bool) -> None:
        super().__init__()
        self.f, self.as_tuple = nn.Linear(6, 6), as_tuple

    def forward(self, x: Tensor) -> Any:
        return (self.f(x), None) if self.as_tuple else self.f(x)


@pytest.mark.parametrize("as_tuple", [True, False])
def test_one_plan_for_both_versions_of_a_block(as_tuple: bool, value: Value) -> None:
    model = Block(as_tuple=as_tuple)
    plan = SitePlan(observed=(Observed(Address(sublayer="mlp", site="branch"), Port("", path=(0,))),))
    with nl.record(model, sites=plan) as recorder:
        model(x())
    # Taken as an index into the tensor, 0 would give the first sequence alone.
    assert value(recorder.table(), site="branch", quantity="count") == 10


def test_a_plan_that_finds_a_container_says_so() -> None:
    plan = SitePlan(observed=(Observed(Address(sublayer="mlp", site="branch"), Port("")),))
    with nl.record(model := Block(as_tuple=True), sites=plan) as recorder:
        model(x())
    assert set(recorder.table()["status"]) == {"not a floating-point tensor"}


@pytest.mark.parametrize("key", [(1,), ("hidden",)])
def test_a_plan_that_asks_a_tensor_for_more_gets_nothing(key: Any) -> None:
    plan = SitePlan(observed=(Observed(Address(sublayer="mlp", site="branch"), Port("", path=key)),))
    with nl.record(model := Block(as_tuple=False), sites=plan) as recorder:
        model(x())
    assert set(recorder.table()["status"]) == {"not there"}


def test_recurrent_layers_and_their_states(value: Value) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.LSTM(6, 4, batch_first=True))
    with nl.record(model) as recorder:
        out, (state, cell) = model(x())
        out.sum().backward()
    table = recorder.table()
    for name, tensor in (("0[0]", out), ("0[1.0]", state), ("0[1.1]", cell)):
        rms = float(tensor.detach().double().square().mean().sqrt())
        assert value(table, name=name, site="output", quantity="rms") == pytest.approx(rms, rel=1e-6)


def statuses(model: nn.Module, site: str) -> dict[str, str]:
    with nl.record(model) as recorder:
        model(x()).sum().backward()
    lines = recorder.coverage().query("site == @site")
    return dict(zip(lines["name"], lines["status"], strict=True))


class Halves(nn.Module):
    """Uses one of two results of an operation: torch calls the hooks of the other with no gradient at all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.both = nn.Linear(6, 6), Makes(lambda x: x.chunk(2, -1))
        self.used, self.unused = Makes(lambda parts: parts[0]), Makes(lambda parts: parts[1])

    def forward(self, x: Tensor) -> Tensor:
        parts = self.both(self.linear(x))
        self.unused(parts)
        return self.used(parts)


def test_a_result_that_nothing_uses_has_no_gradient() -> None:
    found = statuses(Halves(), "output_grad")
    assert found == {
        "linear": "ok", "both[0]": "ok", "both[1]": "no gradient", "used": "ok", "unused": "no gradient"
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ["sparse", "nested", "meta"])
def test_a_result_that_is_not_dense_has_no_values(kind: str) -> None:
    made = {
        "sparse": lambda x: x.detach().to_sparse(),
        "nested": lambda x: torch.nested.as_nested_tensor([x[0], x[1, :2]]),
        "meta": lambda x: x.to("meta"),
    }
    model = nn.Sequential(nn.Linear(6, 6), Makes(made[kind]), Makes(lambda _: x().requires_grad_()))
    found = statuses(model, "output")
    assert (found["0"], found["1"], found["2"]) == ("ok", "not a dense tensor", "ok")
