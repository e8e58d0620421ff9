"""A recorder that is made anew: what is remembered of forms of models never stands in for the model itself."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jaxtyping
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.errors import RecordingError
from normlab.models import SubLayer, Transformer
from normlab.recording import Address, Observed, Port, SitePlan
from normlab.recording.tree import Tree

Make = Callable[..., Transformer]
Value = Callable[..., float]


def sublayer(model: Transformer, index: int) -> SubLayer:
    return [module for _, module in model.sublayers("decoder")][index]


def roles(model: nn.Module) -> list[tuple[str, str]]:
    return [(parameter.name, parameter.role) for parameter in nl.record(model).plan.parameters]


class Shared(nn.Module):
    """A module in two places, a parameter under two names, and one that is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(2, 2, bias=False)
        self.parts = nn.ModuleDict({"two": self.one, "three": nn.Linear(2, 2)})
        self.parts["three"].weight = self.one.weight
        self.left_out = None


def test_a_tree_has_what_torch_names() -> None:
    model = Shared()
    tree = Tree.of(model)
    assert tree.modules == dict(model.named_modules(remove_duplicate=False))
    named = dict(model.named_parameters(remove_duplicate=False))
    assert {name: owner[key] for name, (owner, key) in tree.places.items() if owner[key] is not None} == named
    numbers = tree.numbered()
    assert numbers["one.weight"] == numbers["parts.two.weight"] == numbers["parts.three.weight"]
    assert numbers["parts.three.bias"] != numbers["one.weight"] and "one.bias" not in numbers


def test_models_of_one_form_have_one_plan(make: Make) -> None:
    plan = nl.record(make()).plan
    assert nl.record(make(seed=3)).plan is plan
    assert nl.record(make(depth=3)).plan is not plan


def test_a_model_that_was_recorded_is_let_go_of(make: Make, batch: Any) -> None:
    model = make()
    with nl.record(model) as recorder:
        model.loss(*batch).backward()
    gone = weakref.ref(model), weakref.ref(sublayer(model, 0).mixer)
    del model, recorder
    gc.collect()
    assert [one() for one in gone] == [None, None]


def test_a_module_that_was_replaced_is_the_one_that_is_read(make: Make, batch: Any, value: Value) -> None:
    model = make()
    before = nl.record(model)
    with before:
        model.loss(*batch).backward()
    model.zero_grad()
    norm = sublayer(model, 1).inner_norm
    assert norm is not None
    sublayer(model, 1).inner_norm = nn.Sequential(norm, nn.Linear(16, 16, bias=False))
    seen: list[Tensor] = []
    sublayer(model, 1).mixer.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    with nl.record(model) as after:
        model.loss(*batch).backward()
    where = {"layer": 1, "sublayer": "mlp", "site": "input", "quantity": "mean_square"}
    assert value(after.table(), **where) == pytest.approx(float(seen[0].double().square().mean()), rel=1e-6)
    assert value(before.table(), **where) != value(after.table(), **where)


def test_parameters_that_come_go_and_are_tied_change_the_plan(make: Make) -> None:
    model = make()
    before = roles(model)
    last = sublayer(model, -1).mixer
    last.down.bias = nn.Parameter(torch.zeros(16))
    assert set(roles(model)) - set(before) == {("stacks.decoder.blocks.1.sublayers.mlp.mixer.down.bias", "down_bias")}
    last.down.bias = None
    assert roles(model) == before
    model.head.weight = model.stack("decoder").embedding.token
    tied = {name: role for name, role in roles(model) if role.startswith("embed")}
    assert tied["stacks.decoder.embedding.token"] == "embed+head" and "head.weight" not in dict(roles(model))


def test_two_recorders_of_one_plan_see_the_tensors_of_a_container_each(value: Value) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return 2 * x, 3 * x

    model = nn.Sequential(Two())
    plan = SitePlan(observed=(Observed(Address(site="output", name="0"), Port("0")),))
    x = torch.ones(2, 3, 4)
    with nl.record(model, sites=plan) as one, nl.record(model, sites=plan) as two:
        model(x)
    again = nl.record(model, sites=plan)
    with again:
        model(2 * x)
    for recorder, scale in ((one, 1), (two, 1), (again, 2)):
        for name, size in (("0[0]", 2), ("0[1]", 3)):
            found = value(recorder.table(), site="output", name=name, quantity="mean_square")
            assert found == pytest.approx((scale * size) ** 2)
        assert not set(recorder.coverage()["name"]) & {"0"}


def test_a_module_that_stands_in_two_places_is_read_once_though_the_plan_was_used_before(value: Value) -> None:
    plan = SitePlan(
        observed=tuple(Observed(Address("decoder", layer + 1, "mlp", "stream"), Port(str(layer))) for layer in (0, 1))
    )
    x, found = torch.ones(1, 2, 4), []
    own = [nn.Identity(), nn.Identity()]
    for modules in (own, [own[0], own[0]], own):
        model = nn.Sequential(*modules)
        with nl.record(model, sites=plan) as recorder:
            model(x)
        rows = recorder.table().query("site == 'stream' and quantity == 'mean_square'")
        found.append(rows["layer"].tolist())
    # In two places it has a row for each of its two calls, under both addresses.
    assert found == [[1, 2], [1, 1, 2, 2], [1, 2]]


def test_a_plan_keeps_its_sites_when_the_list_of_them_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Outside of tests nothing refuses a list.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    sites = [Observed(Address("decoder", 1, "mlp", "stream"), Port("0"))]
    plan = SitePlan(observed=sites)  # type: ignore[arg-type]
    sites.append(Observed(Address("decoder", 2, "mlp", "stream"), Port("1")))
    assert len(plan.observed) == 1 and plan.modules == ("0",)


def _compile_sublayer(model: Transformer) -> None:
    sublayers = model.stack("decoder").blocks[0].sublayers
    sublayers["attn"] = torch.compile(sublayers["attn"], backend="eager")


def _compile_part(name: str) -> Callable[[Transformer], None]:
    def change(model: Transformer) -> None:
        *owner, last = name.split(".")
        inside = sublayer(model, 0).get_submodule(".".join(owner))
        setattr(inside, last, torch.compile(inside.get_submodule(last), backend="eager"))

    return change


@pytest.mark.parametrize("change", [_compile_sublayer, *map(_compile_part, ("mixer", "mixer.core", "add"))])
def test_compiled_parts_have_the_sites_of_the_others(change: Any, make: Make, batch: Any) -> None:
    tables = []
    for changed in (False, True):
        model = make()
        if changed:
            change(model)
        with nl.record(model, sites=["logits", "query", "key", "stream", "skip"]) as recorder:
            model.loss(*batch).backward()
        tables.append(recorder.table())
    pd.testing.assert_frame_equal(*tables)


def test_one_block_in_two_places_is_refused(make: Make) -> None:
    model = make()
    model.stack("decoder").blocks[1] = model.stack("decoder").blocks[0]
    with pytest.raises(RecordingError, match="two blocks of the decoder are one and the same"):
        nl.record(model)
