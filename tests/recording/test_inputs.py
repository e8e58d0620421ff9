"""Inputs of any structure, by position and as keywords that have no position."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from recorded_parts import Value, draw
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Observed, Port, SitePlan


@dataclass
class State:
    hidden: Tensor
    rest: dict[str, Any]


class Pair(NamedTuple):
    mask: None
    hidden: Tensor


#: What a module is given, how it gets at the tensor, and the way of a plan to it.
CASES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor], tuple[int | str, ...]]] = {
    "tensor": (lambda x: x, lambda given: given, ()),
    "dict": (lambda x: {"mask": None, "hidden": x}, lambda given: given["hidden"], ("hidden",)),
    "dataclass": (lambda x: State(x, {}), lambda given: given.hidden, ("hidden",)),
    "named tuple": (lambda x: Pair(None, x), lambda given: given.hidden, (1,)),
    "nested": (
        lambda x: State(torch.zeros(()), {"all": [None, (x,)]}),
        lambda given: given.rest["all"][1][0],
        ("rest", "all", 1, 0),
    ),
}


class Takes(nn.Module):
    """Takes a structure by position."""

    def __init__(self, take: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.w, self.take = nn.Parameter(torch.eye(6)), take

    def forward(self, given: Any) -> Tensor:
        return 3 * self.take(given) @ self.w


class TakesKeyword(Takes):
    """Takes it as a keyword alone."""

    def forward(self, *, given: Any) -> Tensor:
        return super().forward(given)


class Model(nn.Module):
    def __init__(self, case: str, keyword: bool) -> None:
        super().__init__()
        self.shape, take, _ = CASES[case]
        self.block, self.keyword = (TakesKeyword if keyword else Takes)(take), keyword

    def forward(self, x: Tensor) -> Tensor:
        # In place afterwards: what was taken must have been read before.
        given = self.shape(hidden := 2 * x)
        out = self.block(given=given) if self.keyword else self.block(given)
        with torch.no_grad():
            hidden.detach().zero_()
        return out


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_plan_reads_what_a_module_takes_and_its_gradient(case: str, keyword: bool, value: Value) -> None:
    way = ("given" if keyword else 0, *CASES[case][2])
    plan = SitePlan(observed=(Observed(Address(sublayer="mlp", site="input"), Port("block", "input", way)),))
    with nl.record(model := Model(case, keyword), sites=plan) as recorder:
        model(draw(2, 5, 6).requires_grad_()).backward(draw(2, 5, 6, seed=6))
    table = recorder.table()
    rms = float(2 * draw(2, 5, 6).double().square().mean().sqrt())
    assert value(table, site="input", quantity="rms") == pytest.approx(rms, rel=1e-6)
    l2 = 3 * float(draw(2, 5, 6, seed=6).double().norm())
    assert value(table, site="input_grad", quantity="l2") == pytest.approx(l2, rel=1e-6)
    assert recorder.coverage()["observed"].all()


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_without_a_plan_its_result_is_read(case: str, keyword: bool, value: Value) -> None:
    with nl.record(model := Model(case, keyword)) as recorder:
        model(draw(2, 5, 6)).sum().backward()
    rms = float(6 * draw(2, 5, 6).double().square().mean().sqrt())
    assert value(recorder.table(), name="block", site="output", quantity="rms") == pytest.approx(rms, rel=1e-6)


@pytest.mark.parametrize("way", [(0, "hidden"), ("given", "nothing"), (1, "hidden"), ("given", "hidden", 1)])
def test_a_way_that_leads_nowhere_is_said(way: tuple[int | str, ...]) -> None:
    plan = SitePlan(observed=(Observed(Address(sublayer="mlp", site="input"), Port("block", "input", way)),))
    with nl.record(model := Model("dict", keyword=True), sites=plan) as recorder:
        model(draw(2, 5, 6))
    table = recorder.table()
    assert set(table["status"]) == {"not there"} and table["value"].isna().all()
