"""Gradients and sizes of parameters by role."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import normlab as nl
from normlab.errors import RecordingError
from normlab.recording import Address, Parameter, SitePlan
from normlab.recording.odd import TOO_SMALL
from normlab.recording.parameters import Parameters

Make = Callable[..., nn.Module]
Value = Callable[..., float]


def recorded(model: nn.Module, batch: Any, **options: Any) -> Any:
    with nl.record(model, sites=["stream"], **options) as recorder:
        model.loss(*batch).backward()
    return recorder.table()


def norm(*tensors: torch.Tensor | None) -> float:
    return float(torch.cat([t.double().flatten() for t in tensors if t is not None]).norm())


@pytest.mark.parametrize("placement", ["pre", "peri", "layerscale"])
def test_every_role(placement: str, make: Make, batch: Any, value: Value) -> None:
    model = make(placement=placement, bias=True, activation="swiglu", position="learned")
    table = recorded(model, batch)
    for path, sub in model.sublayers("decoder"):
        here = {"layer": sub.where.layer, "sublayer": sub.where.sublayer}
        for name, parameter in sub.mixer.named_parameters():
            role = name.replace(".weight", "").replace(".bias", "_bias")
            for quantity, expected in (
                ("grad_norm", norm(parameter.grad)),
                ("grad_rms", norm(parameter.grad) / parameter.numel() ** 0.5),
                ("param_rms", norm(parameter.detach()) / parameter.numel() ** 0.5),
            ):
                assert value(table, role=role, quantity=quantity, **here) == pytest.approx(expected, rel=1e-6), path
        gains = [p.grad for name, p in sub.named_parameters() if name.endswith("norm.gain")]
        assert value(table, role="norm_gain", quantity="grad_norm", **here) == pytest.approx(norm(*gains), rel=1e-6)
        everything = norm(*(p.grad for p in sub.parameters()))
        assert value(table, role="all", quantity="grad_norm", **here) == pytest.approx(everything, rel=1e-6)
    assert value(table, role="head", quantity="grad_norm") == pytest.approx(norm(model.head.weight.grad), rel=1e-6)
    embedding = model.stacks["decoder"].embedding
    assert value(table, role="position", quantity="grad_norm") == pytest.approx(norm(embedding.position.grad), rel=1e-6)
    assert table[table["role"] == "branch_scale"].empty == (placement != "layerscale")


def test_all_squares_add_up_to_the_model(make: Make, batch: Any) -> None:
    model = make(final_norm=True)
    table = recorded(model, batch)
    total = table.query("role == 'all' and quantity == 'grad_norm'")["value"]
    assert np.sqrt((total**2).sum()) == pytest.approx(norm(*(p.grad for p in model.parameters())), rel=1e-6)


def test_tied_weights_count_once(make: Make, batch: Any, value: Value) -> None:
    model = make(tie_embeddings=True)
    table = recorded(model, batch)
    found = value(table, role="embed+head", quantity="grad_norm", layer=0)
    assert found == pytest.approx(norm(model.head.weight.grad), rel=1e-6)
    assert not table["role"].isin(["embed", "head"]).any()


def test_missing_frozen_and_zero_gradients_say_so(make: Make, batch: Any) -> None:
    model = make()
    block = model.stacks["decoder"].blocks[0].sublayers
    block["mlp"].mixer.up.weight.requires_grad_(False)
    with nl.record(model, sites=["stream"]) as recorder:
        loss = model.loss(*batch)
        loss.backward()
        block["attn"].mixer.q.weight.grad.zero_()
        block["attn"].mixer.k.weight.grad = None
    rows = recorder.table().query("layer == 1 and quantity == 'grad_norm'").set_index(["sublayer", "role"])
    assert rows.loc[("mlp", "up"), "status"] == "frozen" and np.isnan(rows.loc[("mlp", "up"), "value"])
    assert rows.loc[("attn", "k"), "status"] == "no gradient" and np.isnan(rows.loc[("attn", "k"), "value"])
    assert rows.loc[("attn", "q"), "status"] == "exact-zero" and rows.loc[("attn", "q"), "value"] == 0
    assert rows.loc[("attn", "all"), "status"] == "without k (no gradient)" and rows.loc[("attn", "all"), "value"] > 0
    coverage = recorder.coverage().query("role == 'k' and layer == 1").iloc[0]
    assert not coverage["observed"] and coverage["status"] == "no gradient"


class Bare(nn.Module):
    def __init__(self, value: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        super().__init__()
        self.w = nn.Parameter(value)
        self.w.grad = gradient


def sums(model: nn.Module, scale: float = 1.0, rows: tuple[int, int] | None = None) -> Any:
    return next(
        iter(Parameters(model, [Parameter("w", Address(name="w"), "", rows)]).measure(scale).by_role().values())
    )


CASES = {
    "fp16, a million hundreds": (torch.full((1000, 1000), 100.0, dtype=torch.float16), 1e5),
    "fp16, small": (torch.full((64, 64), 1e-4, dtype=torch.float16), 64 * float(torch.tensor(1e-4).half())),
    "bf16": (torch.full((300, 70), 3.0, dtype=torch.bfloat16), 3 * 21000**0.5),
    "huge": (torch.full((30, 7), 1e30), 1e30 * 210**0.5),
    "tiny": (torch.full((30, 7), 1e-30), 1e-30 * 210**0.5),
    "one": (torch.full((1,), -2.0), 2.0),
    "scalar": (torch.tensor(3.0), 3.0),
}


@pytest.mark.parametrize("case", CASES)
def test_norms_over_the_whole_range(case: str) -> None:
    gradient, expected = CASES[case]
    found = sums(Bare(torch.zeros_like(gradient), gradient))
    assert found.gradient_squares**0.5 == pytest.approx(expected, rel=1e-6 if "tiny" not in case else 1e-5)
    assert sums(Bare(gradient)).squares == found.gradient_squares


def test_many_small_entries() -> None:
    gradient = torch.randn(10**7, generator=torch.Generator().manual_seed(0)) / 1000
    found = sums(Bare(torch.zeros(10**7), gradient)).gradient_squares ** 0.5
    assert found == pytest.approx(float(gradient.double().norm()), rel=1e-7)


def test_entries_that_are_not_finite_are_counted_and_left_out() -> None:
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    expected = norm(gradient[2:])
    gradient[0], gradient[1] = float("nan"), float("inf")
    model = Bare(torch.ones(1000), gradient)
    found = sums(model)
    assert found.nonfinite == 2 and found.gradient_squares**0.5 == pytest.approx(expected, rel=1e-6)


def test_a_packed_matrix_is_split_by_rows() -> None:
    gradient = torch.arange(12.0).reshape(6, 2)
    model = Bare(torch.ones(6, 2), gradient)
    assert sums(model, rows=(2, 4)).gradient_squares == pytest.approx(float(gradient[2:4].square().sum()))
    assert sums(model, scale=2.0).gradient_squares == pytest.approx(float(gradient.square().sum()) / 4)


def test_sparse_gradients() -> None:
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1))
    with nl.record(model) as recorder:
        model(torch.tensor([[1, 1, 3]])).sum().backward()
    found = recorder.table().query("name == '0.weight' and quantity == 'grad_norm'")["value"].item()
    assert found == pytest.approx(norm(model[0].weight.grad.to_dense()), rel=1e-6)


def test_a_plan_that_names_no_parameter_is_refused(make: Make, batch: Any) -> None:
    plan = SitePlan(parameters=(Parameter("head.wait", Address(), "head"),))
    model = make()
    with pytest.raises(RecordingError, match="'head.wait'.*did you mean 'head.weight'"), nl.record(model, sites=plan):
        model.loss(*batch).backward()


def rows_of(model: nn.Module) -> Any:
    with nl.record(model, sites=SitePlan(parameters=(Parameter("w", Address(name="w"), ""),))) as recorder:
        model.w.grad = model.late
    return recorder.table().set_index("quantity")


def test_a_gradient_of_which_nothing_is_finite_has_no_norm() -> None:
    model = Bare(torch.ones(4))
    model.late = torch.full((4,), torch.nan)
    rows = rows_of(model).loc[["grad_norm", "grad_rms"]]
    assert rows["value"].isna().all() and set(rows["status"]) == {"nonfinite"}


def test_means_are_over_the_entries_that_are_finite() -> None:
    model = Bare(torch.tensor([2.0, torch.nan, 2.0, torch.inf]))
    model.late = torch.tensor([3.0, torch.inf, 3.0, 3.0])
    rows = rows_of(model).loc[["grad_rms", "param_rms"]]
    assert rows["value"].tolist() == pytest.approx([3.0, 2.0]) and set(rows["status"]) == {"nonfinite"}
    broken = Bare(torch.full((4,), torch.nan))
    broken.late = torch.ones(4)
    found = rows_of(broken).loc["param_rms"]
    assert np.isnan(found["value"]) and found["status"] == "nonfinite"


def test_merged_sizes_of_parameters_that_differ_have_no_value() -> None:
    states = []
    for size in (1.0, 2.0):
        with nl.record(Bare(torch.full((4,), size)), sites=["stream"]) as recorder:
            pass
        states.append(recorder.state())
    found = nl.merge(states).query("quantity == 'param_rms'").iloc[0]
    assert np.isnan(found["value"]) and found["status"] == "parameters differ"


def test_a_parameter_without_entries() -> None:
    model = nn.Linear(3, 3)
    model.register_parameter("none", nn.Parameter(torch.empty(0)))
    with nl.record(model) as recorder:
        model(torch.ones(2, 3)).sum().backward()
    statuses = recorder.table().query("name == 'none'").set_index("quantity")["status"]
    assert statuses["param_rms"] == "empty" and statuses["grad_norm"] == "no gradient"


def test_a_parameter_that_a_module_has_not_got_is_refused() -> None:
    plan = SitePlan(parameters=(Parameter("bias", Address(name="bias"), ""),))
    with pytest.raises(RecordingError, match="the parameter 'bias', which the model does not have"):
        nl.record(nn.Linear(3, 3, bias=False), sites=plan)


def test_a_part_of_a_sparse_gradient_is_that_of_its_places() -> None:
    gradient = torch.sparse_coo_tensor(
        torch.tensor([[1, 7]]), torch.tensor([[3.0, 0.0], [0.0, 2.0]]), (10, 2), check_invariants=True
    )
    model = Bare(torch.ones(10, 2), gradient)
    assert sums(model, rows=(0, 2)).gradient_squares == 9 and sums(model, rows=(2, 8)).gradient_squares == 4
    assert sums(model, rows=(2, 5)).gradient_squares == 0
    assert sums(model).gradient_squares == 13


@pytest.mark.parametrize("rows", [(0, 9), (3, 1), (-2, 4)])
def test_places_that_a_parameter_does_not_have_are_refused(rows: tuple[int, int]) -> None:
    with pytest.raises(RecordingError, match=r"of the parameter 'w', whose shape is \(6, 2\)"):
        Parameters(Bare(torch.ones(6, 2)), [Parameter("w", Address(name="w"), "", rows)])


def test_entries_too_small_to_be_squared_say_so() -> None:
    model = Bare(torch.full((3,), 1e-170, dtype=torch.float64))
    plan = SitePlan(parameters=(Parameter("w", Address(name="w"), ""),))
    with nl.record(model, sites=plan) as recorder:
        model.w.grad = torch.full((3,), 1e-160, dtype=torch.float64)
    rows = recorder.table().set_index("quantity")
    for quantity in ("param_rms", "grad_norm"):
        assert np.isnan(rows.loc[quantity, "value"]) and rows.loc[quantity, "status"] == TOO_SMALL
    assert sums(Bare(torch.zeros(3, dtype=torch.float64))).unread == ()
