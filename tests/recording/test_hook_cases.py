"""Ways in which instrumentation goes wrong, and the right values."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import normlab as nl
from normlab.models.block import Block
from normlab.recording import Address, Observed, Port, SitePlan

Value = Callable[..., float]


def recorded(model: nn.Module, *inputs: Any, **options: Any) -> Any:
    with nl.record(model, **options) as recorder:
        out = model(*inputs)
        if out.requires_grad:
            out.square().sum().backward()
    return recorder.table()


def rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def linear(width: int = 6, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(width, width)


def inputs(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


def test_activations_in_place() -> None:
    def build(inplace: bool) -> nn.Module:
        return nn.Sequential(linear(), nn.ReLU(inplace=inplace), linear(seed=1))

    tables = [recorded(build(inplace), inputs(2, 5, 6)) for inplace in (False, True)]
    for name in ("0", "1", "2"):
        one, two = (t[(t["name"] == name) & t["value"].notna()]["value"].to_numpy() for t in tables)
        assert len(one) > 12 and (one == two).all()


class Grows(nn.Module):
    """Changes what its sub-module gave, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.f = linear()

    def forward(self, x: Tensor) -> Tensor:
        h = self.f(x)
        h += x
        return h


def test_an_output_that_is_changed_later_is_read_before(value: Value) -> None:
    model, x = Grows(), inputs(2, 5, 6)
    table = recorded(model, x)
    assert value(table, name="f", quantity="rms") == pytest.approx(rms(model.f(x)), rel=1e-6)
    # Adding x changes no gradient: that of the sum is that of the branch.
    branch = model.f(x) + x
    assert value(table, name="f", quantity="l2") == pytest.approx(float((2 * branch).detach().norm()), rel=1e-6)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first, self.block = linear(), nn.Sequential(linear(seed=1), nn.Tanh(), linear(seed=2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.block(x) if self.reentrant is None else checkpoint(self.block, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputed_module_counts_once(reentrant: bool) -> None:
    plain, again = (recorded(Checkpointed(kind), inputs(2, 5, 6)) for kind in (None, reentrant))
    assert (plain["value"].fillna(-1) == again["value"].fillna(-1)).all() and len(plain) == len(again)
    assert set(again["status"]) == {"ok"}


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.f(hidden_states=x)["out"][0]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = linear()

    def forward(self, hidden_states: Tensor) -> dict[str, tuple[Tensor, None]]:
        return {"out": (self.w(hidden_states), None)}


def test_keywords_and_nested_results(value: Value) -> None:
    model, x = Keywords(), inputs(2, 5, 6).requires_grad_()
    plan = SitePlan(
        observed=(
            Observed(Address(sublayer="mlp", site="input"), Port("f", "input", ("hidden_states",))),
            Observed(Address(sublayer="mlp", site="branch"), Port("f", "output", ("out", 0))),
        )
    )
    table = recorded(model, x, sites=plan)
    assert value(table, site="input", quantity="rms") == pytest.approx(rms(x), rel=1e-6)
    assert value(table, site="branch", quantity="rms") == pytest.approx(rms(model.f.w(x)), rel=1e-6)
    assert value(table, site="input_grad", quantity="l2") == pytest.approx(float(x.grad.norm()), rel=1e-6)


def test_one_activation_in_two_places(value: Value) -> None:
    act = nn.Tanh()
    model, x = nn.Sequential(linear(), act, linear(seed=1), act), inputs(2, 5, 6)
    table = recorded(model, x)
    rows = table[table["quantity"].eq("rms") & table["name"].eq("1, 3")]
    assert rows["call"].tolist() == [0, 1]
    assert rows["value"].tolist() == pytest.approx([rms(act(model[0](x))), rms(model(x))], rel=1e-6)


def test_half_precision_does_not_overflow(value: Value) -> None:
    for size in (300.0, 1e-4):
        x = torch.full((2, 3, 6), size, dtype=torch.float16)
        table = recorded(nn.Identity(), x)
        assert value(table, quantity="rms") == pytest.approx(float(x[0, 0, 0]), rel=1e-6)


def test_a_small_spread_about_a_large_mean() -> None:
    x = 8 + 0.02 * inputs(4, 1024, 64)
    rows = recorded(nn.Identity(), x).query("quantity == 'variance'").iloc[0]
    assert rows["value"] == pytest.approx(float(x.double().var(-1, correction=0).mean()), rel=1e-6)
    assert rows["status"] == "ok"
    stored = x.bfloat16()
    rows = recorded(nn.Identity(), stored).query("quantity == 'variance'").iloc[0]
    assert rows["value"] == pytest.approx(float(stored.double().var(-1, correction=0).mean()), rel=1e-6)
    assert rows["status"] == "coarse"


def test_one_massive_channel(value: Value) -> None:
    x = inputs(8, 64, 512)
    x[0, 0, 7] = 3000.0
    table = recorded(nn.Identity(), x)
    assert value(table, quantity="rms") == pytest.approx(rms(x), rel=1e-6)
    assert value(table, quantity="median_rms") == pytest.approx(1.0, abs=0.01)


def test_a_gradient_without_strides(value: Value) -> None:
    model, x = linear(), inputs(2, 5, 6)
    with nl.record(model) as recorder:
        model(x).sum().backward()
    table = recorder.table()
    assert value(table, quantity="l2") == pytest.approx(math.sqrt(60), rel=1e-6)
    assert value(table, site="output_grad", quantity="grad_coherence") == pytest.approx(1.0, abs=1e-6)


class Routed(nn.Module):
    """Two experts; the second gets no token, the third is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(linear(seed=seed) for seed in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.experts[0](x), self.experts[1](x[:0])])


def test_an_expert_without_tokens_and_one_that_is_not_used() -> None:
    model = Routed()
    with nl.record(model) as recorder:
        model(inputs(5, 6)).sum().backward()
    table = recorder.table()
    empty = table.query("name == 'experts.1' and site == 'output'").set_index("quantity")
    assert empty.loc["count", "value"] == 0 and empty.loc["rms", "status"] == "no tokens"
    unused = table.query("name == 'experts.2'")
    assert unused["value"].isna().all() and unused["status"].str.startswith("not reached").all()
    gradient = table.query("name == 'experts.2.weight' and quantity == 'grad_norm'").iloc[0]
    assert math.isnan(gradient["value"]) and gradient["status"] == "no gradient"
    assert table.query("name == 'experts.0' and quantity == 'rms'")["value"].notna().all()


def test_masked_padding(value: Value) -> None:
    x, mask = inputs(4, 32, 64), (torch.arange(32) < 8).expand(4, 32)
    table = recorded(nn.Identity(), x * mask[..., None], mask=mask)
    assert value(table, quantity="rms") == pytest.approx(rms(x[:, :8]), rel=1e-6)


def test_a_mask_that_does_not_fit_is_said_where_there_is_no_plan() -> None:
    model = nn.Sequential(nn.Identity(), nn.Flatten())
    table = recorded(model, inputs(2, 5, 6), mask=torch.ones(2, 5, dtype=torch.bool))
    flat = table.query("name == '1' and site == 'output'")
    assert flat["value"].isna().all() and flat["status"].str.contains("does not fit").all()
    assert table.query("name == '0' and quantity == 'rms'")["value"].notna().all()


def test_tokens_as_output_are_no_numbers() -> None:
    class Picks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.argmax(-1)

    table = recorded(nn.Sequential(nn.Identity(), Picks()), inputs(2, 5, 6))
    assert set(table.query("name == '1'")["status"]) == {"not a floating-point tensor"}


def test_a_hook_of_the_user_that_replaces_the_output_comes_first(value: Value) -> None:
    model, x = nn.Sequential(linear(), linear(seed=1)), inputs(2, 5, 6)
    model[0].register_forward_hook(lambda module, args, out: 10 * out)
    table = recorded(model, x)
    assert value(table, name="0", quantity="rms") == pytest.approx(rms(model[0](x)), rel=1e-6)
    assert len(model[0]._forward_hooks) == 1


def test_autocast_and_inference_mode(value: Value) -> None:
    model, x = linear(), inputs(2, 5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
        table = recorded(model, x)
    model.zero_grad()
    assert value(table, site="output", quantity="rms", dtype="bfloat16") == pytest.approx(rms(out), rel=1e-6)
    with torch.inference_mode(), nl.record(model) as recorder:
        model(x)
    assert value(recorder.table(), site="output", quantity="rms") == pytest.approx(rms(model(x)), rel=1e-6)


def test_a_threshold_of_dtype_changes_is_two_rows() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor, half: bool) -> Tensor:
            return x.half() if half else x

    model = Mixed()
    with nl.record(model) as recorder:
        model(inputs(2, 5, 6), False)
        model(inputs(2, 5, 6), True)
    assert sorted(recorder.table().query("quantity == 'rms'")["dtype"]) == ["float16", "float32"]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    "fields",
    [{"placement": "post"}, {"parallel": True}, {"placement": "b2t"}, {"placement": "post", "kind": "encoder-decoder"}],
)
def test_a_recomputed_block_counts_the_gradient_of_its_input_once(
    reentrant: bool, fields: dict[str, Any], make: Callable[..., nn.Module], batch: Any
) -> None:
    def table(wrapped: bool) -> Any:
        model = make(depth=3, **fields)
        for block in model.modules():
            if wrapped and isinstance(block, Block):
                block.forward = partial(checkpoint, block.forward, use_reentrant=reentrant)
        with nl.record(model) as recorder:
            model.loss(*batch).backward()
        return recorder.table()

    pd.testing.assert_frame_equal(table(wrapped=True), table(wrapped=False))


class Fails(nn.Module):
    """Runs its first half, then fails if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = linear(), linear(seed=1)

    def forward(self, x: Tensor, fail: bool = False) -> Tensor:
        x = self.f(x)
        if fail:
            raise MemoryError
        return self.g(x)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_pass_that_failed_and_was_tried_again_counts_once(hooked: bool) -> None:
    def recorder(fails: int) -> Any:
        model = Fails()
        if hooked:
            model.register_forward_hook(lambda module, args, out: 2 * out)
        with nl.record(model) as recorder:
            for seed in range(2):
                x = inputs(2, 5, 6) + seed
                for _ in range(fails):
                    with pytest.raises(MemoryError):
                        model(100 * x, fail=True)
                model(x).square().sum().backward()
            for _ in range(fails):
                with pytest.raises(MemoryError):
                    model(100 * x, fail=True)
        return recorder

    pd.testing.assert_frame_equal(recorder(2).table(), recorder(0).table())


def test_gradients_that_come_after_a_later_pass_failed_are_kept() -> None:
    def recorder(*, fails: bool) -> Any:
        model, x = Fails(), inputs(2, 5, 6)
        with nl.record(model) as recorder:
            first = model(x)
            if fails:
                with pytest.raises(MemoryError):
                    model(100 * x, fail=True)
            first.square().sum().backward()
            model(x + 1).square().sum().backward()
        return recorder

    pd.testing.assert_frame_equal(recorder(fails=True).table(), recorder(fails=False).table())


def test_a_module_with_a_hook_that_failed_is_read_once(value: Value) -> None:
    model = nn.Sequential(Fails())
    model[0].register_forward_hook(lambda module, args, out: 2 * out)
    plan = SitePlan(observed=(Observed(Address(sublayer="mlp", site="branch"), Port("0", "output", ())),))
    with nl.record(model, sites=plan) as recorder:
        with pytest.raises(MemoryError):
            model[0](inputs(2, 5, 6), True)
        model[0](inputs(2, 5, 6))
    assert value(recorder.table(), site="branch", quantity="count") == 10


def test_a_pass_without_a_backward_pass_is_said(value: Value) -> None:
    model = nn.Sequential(linear(), linear(seed=1))
    with nl.record(model) as recorder:
        model(inputs(2, 5, 6))
        model(inputs(4, 5, 6)).sum().backward()
    rows = recorder.table().query("quantity == 'l2'")
    assert set(rows["status"]) == {"counted 20 of 30 tokens"} and len(rows) == 2
