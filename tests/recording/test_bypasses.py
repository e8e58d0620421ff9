"""Modules that hooks do not see, and those that are never called: rows of coverage say so, by path."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import normlab as nl
from normlab.errors import RecordingError
from normlab.recording import RecordingWarning

Value = Callable[..., float]
BYPASSED = "not reached: the module was not called, though something else uses its parameters"
SILENT = "not reached: the module was not called"


def x(width: int = 8) -> Tensor:
    return torch.randn((2, 5, width), generator=torch.Generator().manual_seed(5))


def statuses(recorder: Any, site: str = "output") -> dict[str, str]:
    coverage = recorder.coverage()
    return dict(coverage[coverage["site"] == site][["name", "status"]].itertuples(index=False))


def test_attention_of_torch_uses_its_last_matrix_past_the_module(value: Value) -> None:
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    with nl.record(model) as recorder:
        out, _ = model(x(), x(), x())
        out.square().sum().backward()
    found, table = statuses(recorder), recorder.table()
    assert found["out_proj"] == BYPASSED and found["[0]"] == "ok"
    rms = float(out.detach().double().square().mean().sqrt())
    assert value(table, name="[0]", site="output", quantity="rms") == pytest.approx(rms, rel=1e-6)
    assert value(table, name="[0]", site="output_grad", quantity="l2") == pytest.approx(
        2 * float(out.detach().double().norm()), rel=1e-6
    )
    gradient = float(model.out_proj.weight.grad.double().norm())
    assert value(table, name="out_proj.weight", quantity="grad_norm") == pytest.approx(gradient, rel=1e-6)
    assert table.query("name == 'out_proj' and site == 'output'")["value"].isna().all()


class Past(nn.Module):
    """Calls one module's forward function, uses the weights of another, and leaves a third alone."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.forwarded, self.used, self.alone = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, given: Tensor) -> Tensor:
        return F.linear(self.forwarded.forward(self.called(given)), self.used.weight)


def test_every_way_past_a_module_is_named() -> None:
    model = Past()
    with nl.record(model) as recorder:
        model(x()).sum().backward()
    assert statuses(recorder) == {"called": "ok", "forwarded": BYPASSED, "used": BYPASSED, "alone": SILENT}
    coverage = recorder.coverage().query("site == ''").set_index("name")
    assert coverage.loc["alone.weight", "status"] == coverage.loc["used.bias", "status"] == "no gradient"
    assert coverage.loc["used.weight", "observed"]
    norm = recorder.table().query("name == 'alone.weight' and quantity == 'grad_norm'").iloc[0]
    assert math.isnan(norm["value"]) and norm["status"] == "no gradient"


def test_strict_refuses_a_module_that_was_passed_by() -> None:
    with pytest.raises(RecordingError, match="output of forwarded .*something else uses its parameters"):
        with nl.record(model := Past(), strict=True):
            model(x()).sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_model_runs_past_hooks_and_says_so() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    with pytest.warns(RecordingWarning, match="the model ran, but none of the modules"), nl.record(model) as recorder:
        model(x()).sum().backward()
    assert statuses(recorder) == {"0": BYPASSED, "1": SILENT}


def test_the_fused_path_of_torchs_layers_says_so() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with pytest.warns(RecordingWarning, match="set_fastpath_enabled"), nl.record(model) as recorder, torch.no_grad():
        model(x())
    assert set(statuses(recorder).values()) == {SILENT}
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with nl.record(model) as recorder, torch.no_grad():
            model(x())
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    found = statuses(recorder)
    assert {name for name, status in found.items() if status != "ok"} == {"self_attn.out_proj"}


def test_a_mask_of_minus_infinity_is_no_alarm() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add = Adds()

        def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
            return self.add(scores, mask)

    class Adds(nn.Module):
        def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
            return (scores + mask).softmax(-1)

    mask = torch.full((5, 5), -math.inf).triu(1)
    with nl.record(model := Masked()) as recorder:
        model(x(5), mask)
    table = recorder.table()
    assert (table[table["quantity"] == "nonfinite"]["value"].dropna() == 0).all()
    assert "nonfinite" not in set(table["status"])


def test_the_first_module_where_numbers_stop_being_finite_is_found() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    with torch.no_grad():
        model[2].bias[3] = math.inf
    with nl.record(model) as recorder, torch.no_grad():
        model(x())
    table = recorder.table()
    counts = table[(table["quantity"] == "nonfinite") & (table["site"] == "output")].set_index("name")["value"]
    assert counts.to_dict() == {"0": 0, "1": 0, "2": 10, "3": 80}


def test_a_gradient_of_the_first_layer_is_there_though_its_input_needs_none(value: Value) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    with nl.record(model) as recorder:
        model(x()).square().sum().backward()
    norm = float(model[0].weight.grad.double().norm())
    assert value(recorder.table(), name="0.weight", quantity="grad_norm") == pytest.approx(norm, rel=1e-6)


def test_tied_weights_of_any_model_count_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.embed(tokens))

    model = Tied()
    with nl.record(model) as recorder:
        model(torch.arange(10).view(2, 5)).square().sum().backward()
    rows = recorder.table().query("quantity == 'grad_norm'")
    assert rows["name"].tolist() == ["embed.weight, head.weight"]
    assert rows["value"].item() == pytest.approx(float(model.embed.weight.grad.double().norm()), rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "functional_call"])
def test_transforms_of_torch_func_run_and_say_why_there_is_no_value(transform: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x,)).square().sum()

    ways: dict[str, Callable[[], Any]] = {
        "grad": lambda: torch.func.grad(loss)(weights, x()),
        "vmap": lambda: torch.func.vmap(lambda one: loss(weights, one))(x()),
        "jvp": lambda: torch.func.jvp(lambda one: loss(weights, one), (x(),), (x(),)),
        "functional_call": lambda: loss(weights, x()),
    }
    expected = ways[transform]()
    with nl.record(model) as recorder:
        found = ways[transform]()
    for one, two in zip(tree_leaves(expected), tree_leaves(found), strict=True):
        assert torch.equal(one, two)
    rows = recorder.coverage().query("site == 'output'")
    if transform == "functional_call":
        assert rows["observed"].all()
    else:
        assert not rows["observed"].any() and rows["status"].str.contains("torch.func").all()


def test_a_loss_under_a_transform_is_not_recorded() -> None:
    model = nl.build(nl.ModelSpec(depth=2, width=16, heads=2))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    tokens, targets = nl.data.random_batch(batch=2, tokens=8)
    with nl.record(model) as recorder:
        torch.func.grad(lambda one: model.criterion(torch.func.functional_call(model, one, (tokens,)), targets))(
            weights
        )
    table = recorder.table()
    assert table.loc[table["site"] == "stream", "status"].str.contains("torch.func").all()
    assert table.loc[table["quantity"] == "loss", "value"].isna().all()
