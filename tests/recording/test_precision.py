"""Dtypes, ranges and sizes: autocast, loss scaling, overflow, what rounding eats, odd gradients."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Observed, Parameter, Port, Residual, SitePlan
from normlab.recording.parameters import Parameters

Value = Callable[..., float]


def draw(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def chain(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))


def test_a_gradient_scaler_is_undone(value: Value) -> None:
    plain, scaled = chain(), chain()
    with nl.record(plain) as recorder:
        plain(draw(2, 5, 6)).square().mean().backward()
    expected = recorder.table()
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    with nl.record(scaled, loss_scale=scaler.get_scale()) as recorder:
        scaler.scale(scaled(draw(2, 5, 6)).square().mean()).backward()
    found = recorder.table()
    for quantity in ("l2", "grad_norm"):
        one, two = (table[table["quantity"] == quantity]["value"].tolist() for table in (expected, found))
        assert one == pytest.approx(two, rel=1e-6) and min(one) > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_read_in_the_dtype_that_runs(dtype: torch.dtype, value: Value) -> None:
    model, x = chain(), draw(2, 5, 6)
    seen: dict[str, Tensor] = {}
    handles = [
        module.register_forward_hook(lambda module, args, out, name=name: seen.__setitem__(name, out.detach().clone()))
        for name, module in model.named_children()
    ]
    with torch.autocast("cpu", dtype=dtype):
        model(x)
        for handle in handles:
            handle.remove()
        with nl.record(model) as recorder:
            model(x).float().square().sum().backward()
    table = recorder.table()
    for name, tensor in seen.items():
        stored = str(tensor.dtype).removeprefix("torch.")
        assert value(table, name=name, site="output", quantity="rms", dtype=stored) == pytest.approx(
            rms(tensor), rel=1e-6
        )
    norm = float(model[0].weight.grad.double().norm())
    assert value(table, name="0.weight", quantity="grad_norm", dtype="float32") == pytest.approx(norm, rel=1e-6)


class Residuals(nn.Module):
    """A residual sum that no module gives."""

    def __init__(self, size: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.before, self.branch, self.after = nn.Identity(), nn.Identity(), nn.Identity()
        self.size, self.dtype = size, dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.before(x) + self.branch((self.size * x).to(self.dtype)))


def pair_of(model: nn.Module, x: Tensor) -> Any:
    skip, update, total = Port("before"), Port("branch"), Port("after", "input", (0,))
    plan = SitePlan(
        observed=(
            Observed(Address("decoder", 1, "mlp", "update"), update),
            Observed(Address("decoder", 1, "mlp", "stream"), total),
        ),
        residuals=(Residual(Address("decoder", 1, "mlp", "update"), skip, update, total),),
    )
    with nl.record(model, sites=plan) as recorder:
        model(x)
    return recorder.table().set_index(["site", "quantity"])


def test_an_overflow_in_the_add_alone_is_seen() -> None:
    x = torch.full((1, 4, 8), 100.0, dtype=torch.float16)
    x[0, 0] = 40_000.0
    rows = pair_of(Residuals(1.0, torch.float16), x)
    assert rows.loc[("update", "nonfinite"), "value"] == 0
    assert rows.loc[("stream", "nonfinite"), "value"] == 8 and rows.loc[("stream", "count"), "value"] == 3
    assert rows.loc[("stream", "rms"), "value"] == 200 and rows.loc[("stream", "rms"), "status"] == "nonfinite"
    assert rows.loc[("update", "lost_share"), "status"] == "nonfinite"


def test_what_the_add_of_bfloat16_eats_is_seen() -> None:
    x = draw(2, 64, 32).bfloat16()
    rows = pair_of(Residuals(1e-3, torch.bfloat16), x)
    update = (1e-3 * x).bfloat16()
    lost = (x + update).double() - (x.double() + update.double())
    expected = rms(lost) / rms(update)
    assert expected > 0.5
    assert rows.loc[("update", "lost_share"), "value"] == pytest.approx(expected, rel=1e-6)


def test_a_stream_that_changes_its_dtype_has_rows_of_each() -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(6, 6).bfloat16(), nn.Identity())
    model[0].register_forward_hook(lambda module, args, out: out.bfloat16())
    model[1].register_forward_hook(lambda module, args, out: out.float())
    with nl.record(model) as recorder:
        model(draw(2, 5, 6))
    rows = recorder.table().query("quantity == 'rms'").set_index("name")["dtype"]
    assert rows.to_dict() == {"0": "bfloat16", "1": "float32", "2": "float32"}


def test_terms_of_two_dtypes_are_compared_as_they_are() -> None:
    x = draw(2, 16, 32)
    rows = pair_of(Residuals(0.5, torch.bfloat16), x)
    update = (0.5 * x).bfloat16().double()
    assert rows.loc[("update", "update_ratio"), "value"] == pytest.approx(rms(update) / rms(x), rel=1e-6)
    stored = (x + (0.5 * x).bfloat16()).double()
    lost = rms(stored - (x.double() + update)) / rms(update)
    assert rows.loc[("update", "lost_share"), "value"] == pytest.approx(lost, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e20, 1e37])
def test_the_whole_range_of_float32(scale: float, value: Value) -> None:
    class Scales(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scale * x

    x = draw(2, 8, 16)
    model = nn.Sequential(Scales(), nn.Identity())
    with nl.record(model) as recorder:
        model(x.requires_grad_()).backward(x.detach() * scale)
    table = recorder.table()
    expected = rms(scale * x.detach())
    assert value(table, name="1", site="output", quantity="rms") == pytest.approx(expected, rel=1e-6)
    l2 = float((scale * x.detach()).double().norm())
    assert value(table, name="0", site="output_grad", quantity="l2") == pytest.approx(l2, rel=1e-6)


GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "of a sum, stride 0": lambda y: y.sum(),
    "transposed": lambda y: (y.transpose(1, 2) * draw(2, 6, 5).mul(3)).sum(),
    "of every second token": lambda y: (y[:, ::2] * draw(2, 3, 6)).sum(),
    "of one feature": lambda y: (y[..., 2] * draw(2, 5)).sum(),
    "backwards": lambda y: (y.flip(-1) * draw(2, 5, 6)).sum(),
    "expanded": lambda y: (y.unsqueeze(0).expand(3, 2, 5, 6) * draw(3, 2, 5, 6)).sum(),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_of_any_strides(case: str, value: Value) -> None:
    model, x = chain(), draw(2, 5, 6)
    y = model(x).detach().requires_grad_()
    GRADIENTS[case](y).backward()
    with nl.record(model) as recorder:
        GRADIENTS[case](model(x)).backward()
    found = value(recorder.table(), name="2", site="output_grad", quantity="l2")
    assert found == pytest.approx(float(y.grad.double().norm()), rel=1e-6)


def test_no_tokens_at_all_have_no_gradient_and_no_mean(value: Value) -> None:
    model = chain()
    with nl.record(model) as recorder:
        model(draw(2, 5, 6)[:, :0]).sum().backward()
    table = recorder.table()
    rows = table[table["site"].isin(["output", "output_grad"])]
    counts = rows["quantity"].isin(["count", "nonfinite"])
    assert (rows[counts]["value"] == 0).all()
    assert rows[~counts]["value"].isna().all() and set(rows[~counts]["status"]) == {"no tokens"}
    assert value(table, name="0.weight", quantity="grad_norm") == 0


def test_a_hundred_million_small_entries_have_their_norm() -> None:
    entries = draw(10**6) / 1000
    model = nn.Module()
    # The same million a hundred times, without the memory for it.
    model.w = nn.Parameter(entries.expand(100, 10**6))
    (sums,) = Parameters(model, [Parameter("w", Address(name="w"), "")]).measure(1.0).by_role().values()
    assert sums.entries == 10**8
    assert math.sqrt(sums.squares) == pytest.approx(10 * float(entries.double().norm()), rel=1e-7)
