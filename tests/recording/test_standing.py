"""Parameters that are replaced or written while a model is recorded."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import normlab as nl
from normlab.errors import RecordingError
from normlab.recording import native
from normlab.recording.parameters import GONE, REPLACED
from normlab.recording.standing import Mark


def norm(tensor: torch.Tensor | None) -> float:
    assert tensor is not None
    return float(tensor.double().norm())


def linear() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16))


def loaded(model: Any) -> None:
    model.load_state_dict({name: one * 2 for name, one in model.state_dict().items()}, assign=True)


def doubled(model: Any) -> None:
    model[0].weight.data.mul_(2)


def by_numpy(model: Any) -> None:
    model[0].bias.detach().numpy()[:] += 1


def rounded(model: Any) -> None:
    model.to(torch.bfloat16).to(torch.float32)


def put(model: Any) -> None:
    model[0].weight = nn.Parameter(model[0].weight.detach() * 2)


def another(model: Any) -> None:
    model[0] = nn.Linear(16, 16)


CHANGES = [loaded, doubled, by_numpy, rounded, put, another]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_parameters_that_change_between_two_passes_of_a_step_are_refused(
    change: Callable[[Any], None], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    model, x = linear(), torch.ones(2, 3, 16)
    with pytest.raises(RecordingError, match=r"the parameter '0\.(weight|bias)' changed between two forward passes"):
        with nl.record(model) as recorder:
            model(x).sum().backward()
            change(model)
            model(x)
    # What had been measured is there.
    assert recorder.table().query("quantity == 'rms'")["status"].tolist() == ["ok"]


@pytest.mark.parametrize("change", CHANGES[:-1])
def test_parameters_may_change_between_steps(change: Callable[[Any], None]) -> None:
    model, x = linear(), torch.ones(2, 3, 16)
    with nl.record(model) as recorder:
        model(x).sum().backward()
        recorder.step()
        model.zero_grad()
        change(model)
        model(x).sum().backward()
    rows = recorder.table().query("step == 1 and name == '0.weight'").set_index("quantity")["value"]
    assert rows["param_rms"] == pytest.approx(norm(model[0].weight.detach()) / 16)
    assert rows["grad_norm"] == pytest.approx(norm(model[0].weight.grad))


@pytest.mark.parametrize("change", CHANGES[:-1])
def test_parameters_may_change_before_the_first_pass(change: Callable[[Any], None]) -> None:
    model, x = linear(), torch.ones(2, 3, 16)
    with nl.record(model) as recorder:
        change(model)
        for _ in range(2):
            model(x).sum().backward()
    rows = recorder.table().query("name == '0.weight'").set_index("quantity")["value"]
    assert rows["param_rms"] == pytest.approx(norm(model[0].weight.detach()) / 16)
    assert rows["grad_norm"] == pytest.approx(norm(model[0].weight.grad))


def test_a_gradient_of_a_parameter_that_was_replaced_says_so() -> None:
    model, x = linear(), torch.ones(2, 3, 16)
    with nl.record(model) as recorder:
        model(x).sum().backward()
        model[0].weight = nn.Parameter(model[0].weight.detach().clone())
        model(x).sum().backward()
    rows = recorder.table().query("name == '0.weight'").set_index("quantity")
    assert rows.loc["param_rms", "status"] == "ok"
    assert rows.loc["grad_norm", "status"] == REPLACED and np.isnan(rows.loc["grad_norm", "value"])
    bias = recorder.table().query("name == '0.bias' and quantity == 'grad_norm'")["value"]
    assert bias.tolist() == [pytest.approx(norm(model[0].bias.grad))]


def test_a_parameter_that_is_gone_says_so_and_the_rest_is_there() -> None:
    model, x = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), torch.ones(2, 3, 16)
    with nl.record(model) as recorder:
        model(x).sum().backward()
        model[1] = nn.Sequential(model[1])
    rows = recorder.table().query("quantity == 'param_rms'").set_index("name")
    assert rows.loc["1.weight", "status"] == GONE and np.isnan(rows.loc["1.weight", "value"])
    assert rows.loc["0.weight", "value"] == pytest.approx(norm(model[0].weight.detach()) / 16)
    gradients = recorder.table().query("quantity == 'grad_norm'").set_index("name")["status"]
    assert gradients["1.weight"] == GONE and gradients["0.weight"] == "ok"


def test_a_parameter_of_which_a_part_is_planned_may_go() -> None:
    part = nl.recording.Parameter("0.weight", nl.recording.Address(name="rows"), "", (0, 4))
    model, x = linear(), torch.ones(2, 3, 16)
    with nl.record(model, sites=nl.recording.SitePlan(parameters=(part,))) as recorder:
        model(x).sum().backward()
        model[0] = nn.Identity()
    assert set(recorder.table().query("name == 'rows'")["status"]) == {GONE}


def test_parameters_that_are_kept_elsewhere_between_passes_have_not_changed() -> None:
    model, x = linear(), torch.ones(2, 3, 16)
    with nl.record(model) as recorder:
        for _ in range(2):
            model(x).sum().backward()
            kept = model[0].weight.data
            model[0].weight.data = torch.empty(0)
            model[0].weight.data = kept.clone()
    assert recorder.table().query("name == '0.weight' and quantity == 'grad_norm'")["status"].tolist() == ["ok"]


def test_parameters_on_meta_between_passes_have_not_changed() -> None:
    model, x = linear(), torch.ones(2, 3, 16)
    with nl.record(model) as recorder, torch.no_grad():
        for _ in range(2):
            model(x)
            kept = model[0].weight
            model[0].weight = nn.Parameter(torch.empty(16, 16, device="meta"))
            recorder._pass_starts()
            model[0].weight = nn.Parameter(kept.detach().clone())
    assert recorder.table().query("quantity == 'rms' and site == 'output'")["status"].tolist() == ["ok"]


def test_marks_tell_what_torch_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (native.library(), None):
        monkeypatch.setattr(native, "library", lambda found=found: found)
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            for entries in (1, 2, 15, 16, 17, 31, 1000):
                row = torch.arange(entries, dtype=torch.float32).to(dtype)
                # The last entry of each is looked at, however they lie.
                for tensor in (row, row.repeat(2, 1).T, torch.stack((row, row), -1)[:, 1], row.view(1, -1, 1)):
                    (before,) = native.marks([tensor])
                    assert before == native.marks([tensor])[0] and before[1] == tensor.nbytes and before[2]
                    tensor.data.select(tensor.dim() - 2 if tensor.dim() == 3 else 0, -1).add_(64)
                    assert Mark(*native.marks([tensor])[0]).differs(Mark(*before))
        assert native.marks([None, torch.empty(0), torch.empty(2, device="meta")]) == [(-1, 0, 0), (0, 0, 0), (0, 0, 0)]


def test_a_module_that_is_replaced_between_steps() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with nl.record(model) as recorder:
        model(torch.ones(2, 3)).sum().backward()
        recorder.step()
        model.zero_grad()
        model[1] = nn.Linear(3, 3)
        model(torch.ones(2, 3)).sum().backward()
    found = recorder.table().query("step == 1 and name == '1.weight'").set_index("quantity")["value"]
    weight = model[1].weight
    assert found["param_rms"] == pytest.approx(norm(weight.detach()) / 3)
    assert found["grad_norm"] == pytest.approx(norm(weight.grad))


def test_parameters_that_are_swapped_for_one_call_have_not_changed() -> None:
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.mul_(1.0)
    copies = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    assert copies["weight"]._version != model.weight._version
    with nl.record(model) as recorder:
        torch.func.functional_call(model, copies, (torch.ones(2, 3),))
        model(torch.ones(2, 3)).sum().backward()
    assert recorder.table().query("quantity == 'count'")["value"].tolist() == [4, 2]


@pytest.mark.filterwarnings("error")
def test_parameters_that_are_made_for_one_call_give_no_warning() -> None:
    model = nn.Linear(3, 3)
    made = {name: 2 * parameter for name, parameter in model.named_parameters()}
    with nl.record(model) as recorder:
        torch.func.functional_call(model, made, (torch.ones(2, 3),)).sum().backward()
    table = recorder.table().query("role == 'other' or name == 'weight'").set_index("quantity")["value"]
    assert model.weight.grad is not None and table["grad_norm"] == pytest.approx(norm(model.weight.grad))
    assert table["param_rms"] == pytest.approx(norm(model.weight.detach()) / 3)


def test_all_parameters_of_a_module_may_be_replaced() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with nl.record(model) as recorder:
        model[0]._parameters = {name: nn.Parameter(one.detach() + 1) for name, one in model[0].named_parameters()}
        model(torch.ones(2, 3, 4)).sum().backward()
    rows = recorder.table().query("quantity == 'grad_norm' and name == '0.weight'")
    assert rows["value"].tolist() == [pytest.approx(norm(model[0].weight.grad))]


class Alike(nn.Module):
    """Says that it equals any other of its kind."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((4,), gain))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    __hash__ = nn.Module.__hash__

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain


def test_a_module_is_replaced_by_one_that_says_it_equals_it() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), Alike(1.0)), torch.ones(2, 3, 4)
    with nl.record(model) as recorder:
        model(x).sum().backward()
        recorder.step()
        model.zero_grad()
        model[1] = Alike(5.0)
        model(x).sum().backward()
    table = recorder.table()
    rows = table[(table["name"] == "1.gain") & (table["quantity"] == "param_rms")]
    assert rows.sort_values("step")["value"].tolist() == [1.0, 5.0]
