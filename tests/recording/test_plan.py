"""A plan of one's own for a model that nobody knows: residual sums across modules, heads, the loss."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.errors import RecordingError, UnknownNameError
from normlab.recording import Absent, Address, Observed, Parameter, Port, Residual, Scores, SitePlan

Value = Callable[..., float]


class Odd(nn.Module):
    """x + f(norm(x)), with the sum taken outside of any module and seen by the next."""

    def __init__(self, in_place: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.in_place = in_place
        self.norm, self.f, self.head = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        update = self.f(self.norm(x))
        if self.in_place:
            update += x
            return self.head(update)
        return self.head(x + update)


def address(site: str) -> Address:
    return Address("decoder", 1, "mlp", site)


PLAN = SitePlan(
    observed=(
        Observed(address("skip"), Port("norm", "input", (0,))),
        Observed(address("input"), Port("f", "input", (0,))),
        Observed(address("branch"), Port("f")),
        Observed(address("update"), Port("f")),
        Observed(address("stream"), Port("head", "input", (0,))),
    ),
    residuals=(Residual(address("update"), Port("norm", "input", (0,)), Port("f"), Port("head", "input", (0,))),),
    absent=(Absent(address("sum"), "the stream is the sum"),),
    parameters=(Parameter("f.weight", Address("decoder", 1, "mlp"), "down"),),
)


def draw() -> Tensor:
    return torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))


def test_a_sum_across_modules(value: Value, reference: ModuleType) -> None:
    model, x = Odd(), draw()
    with nl.record(model, sites=PLAN, strict=True) as recorder:
        model(x).sum().backward()
    table, update = recorder.table(), model.f(model.norm(x)).detach()
    expected = reference.update(update, x, x + update)
    for name, wanted in expected.items():
        assert value(table, site="update", quantity=name) == pytest.approx(wanted, abs=1e-6), name
    assert value(table, site="update_grad", quantity="l2") == value(table, site="branch_grad", quantity="l2")
    assert set(table.query("site == 'sum'")["status"]) == {"the stream is the sum"}
    assert not recorder.coverage().query("site == 'sum'")["expected"].any()
    assert value(table, role="down", quantity="param_rms") > 0


def test_an_update_that_becomes_the_sum_in_place_is_said() -> None:
    model = Odd(in_place=True)
    with nl.record(model, sites=PLAN) as recorder:
        model(draw()).sum().backward()
    rows = recorder.table().query("site == 'update'").set_index("quantity")
    assert np.isnan(rows.loc["lost_share", "value"]) and "changed in place" in rows.loc["lost_share", "status"]
    assert rows.loc["rms", "value"] > 0


def test_a_path_that_the_model_does_not_have_is_refused() -> None:
    plan = SitePlan(observed=(Observed(address("branch"), Port("heed")),))
    with pytest.raises(RecordingError, match="module 'heed'.*did you mean 'head'"):
        nl.record(Odd(), sites=plan)


@pytest.mark.parametrize("attention", ["softmax", "uniform"])
def test_queries_keys_values_and_logits(
    attention: str, make: Callable[..., nn.Module], batch: Any, reference: ModuleType
) -> None:
    model = make(attention=attention)
    seen: list[tuple[Tensor, ...]] = []
    core = model.stacks["decoder"].blocks[1].sublayers["attn"].mixer.core
    core.register_forward_hook(lambda module, args, out: seen.append(args))
    with nl.record(model, sites=["query", "key", "value", "logits"]) as recorder, torch.no_grad():
        model(batch[0])
    table = recorder.table().query("layer == 2")
    if attention == "uniform":
        assert set(table.query("site == 'logits'")["status"]) == {"uniform attention"}
        assert table.query("site == 'value' and quantity == 'rms'")["value"].notna().all()
        return
    query, key, _ = seen[0]
    for head in range(2):
        rows = table.query("site == 'query' and head == @head").set_index("quantity")["value"]
        for name, wanted in reference.activation(query[:, head]).items():
            assert rows[name] == pytest.approx(wanted, rel=1e-6, abs=1e-6), name
        logits = (query[:, head].double() @ key[:, head].double().mT) / query.shape[-1] ** 0.5
        visible = logits[:, torch.ones(6, 6).tril().bool()]
        rows = table.query("site == 'logits' and head == @head").set_index("quantity")["value"]
        assert rows["rms"] == pytest.approx(float(visible.square().mean().sqrt()), rel=1e-9)
        assert rows["max_abs"] == pytest.approx(float(visible.abs().max()), rel=1e-9)
        assert rows["count"] == 48 and rows["mean"] == pytest.approx(float(visible.mean()), rel=1e-9)


def test_masked_pairs_are_not_counted(make: Callable[..., nn.Module], batch: Any) -> None:
    model, mask = make(), (torch.arange(6) < 4).expand(8, 6)
    with nl.record(model, mask=mask, sites=["logits"]) as masked, torch.no_grad():
        model(batch[0])
    with nl.record(model, sites=["logits"]) as short, torch.no_grad():
        model(batch[0][:, :4])
    assert masked.table()["value"].to_numpy() == pytest.approx(short.table()["value"].to_numpy(), rel=1e-5, nan_ok=True)


class Heads(nn.Module):
    """Attention whose queries and keys per head are handed to a module."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.core = nn.Linear(6, 6), nn.Linear(6, 6), Core()

    def forward(self, x: Tensor) -> Tensor:
        query, key = (each(x).unflatten(-1, (2, 3)).transpose(1, 2) for each in (self.q, self.k))
        return self.core(query, key)


class Core(nn.Module):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return (query @ key.mT / 3**0.5).softmax(-1)


def test_a_plan_of_ones_own_records_every_site_that_it_names() -> None:
    query, key = (Port("core", "input", (place,)) for place in (0, 1))
    model, x, at = Heads().requires_grad_(False), draw(), Address("encoder", 1, "attn")
    plan = SitePlan(
        observed=(Observed(at._replace(site="query"), query, heads=True),),
        scores=(Scores(at._replace(site="logits"), query, key, causal=False),),
    )
    with nl.record(model, sites=plan, strict=True) as recorder:
        model(x)
    found = recorder.table().query("quantity == 'rms'").set_index(["site", "head"])["value"]
    heads = [each(x).double().unflatten(-1, (2, 3)).transpose(1, 2) for each in (model.q, model.k)]
    logits = heads[0] @ heads[1].mT / 3**0.5
    for head in (0, 1):
        assert found["query", head] == pytest.approx(float(heads[0][:, head].square().mean().sqrt()), rel=1e-6)
        assert found["logits", head] == pytest.approx(float(logits[:, head].square().mean().sqrt()), rel=1e-6)


def test_a_site_that_does_not_exist_is_refused_in_a_plan_too() -> None:
    with pytest.raises(UnknownNameError, match="unknown site 'steam'.*did you mean 'stream'"):
        nl.record(Odd(), sites=SitePlan(observed=(Observed(address("steam"), Port("f")),)))
