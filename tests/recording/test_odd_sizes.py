"""Finite numbers whose squares float64 does not hold: a true reason instead of infinities and zeros."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import normlab as nl


class Scales(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        (1e160, "too large to be squared in float64"),
        (1e300, "too large to be squared in float64"),
        (1e-170, "too small to be squared in float64"),
        (1e-300, "too small to be squared in float64"),
    ],
)
@pytest.mark.parametrize("site", ["output", "output_grad"])
def test_numbers_that_cannot_be_squared(factor: float, reason: str, site: str) -> None:
    x = torch.linspace(0.1, 1, 48, dtype=torch.float64).view(2, 3, 8).requires_grad_()
    model = nn.Sequential(nn.Identity(), Scales(factor))
    with nl.record(model, sites=["output", "output_grad"]) as recorder:
        y = model(x)
        (y / factor).sum().backward() if site == "output" else y.sum().backward()
    number = "1" if site == "output" else "0"
    table = recorder.table()
    rows = table[(table["name"] == number) & (table["site"] == site)].set_index("quantity")
    counted, plain = rows.index.isin(["nonfinite", "count"]), rows.index.isin(["mean", "max_abs"])
    assert set(rows[~(counted | plain)]["status"].astype(str)) == {reason}
    assert rows[~(counted | plain)]["value"].isna().all() and set(rows[plain]["status"]) == {"ok"}
    tensor = y.detach() if site == "output" else torch.full_like(x, factor)
    assert rows.loc["max_abs", "value"] == float(tensor.abs().max()) and rows.loc["nonfinite", "value"] == 0
    if site == "output":
        assert rows.loc["mean", "value"] == pytest.approx(float((tensor / factor).mean()) * factor, rel=1e-12)


@pytest.mark.parametrize("factor", [1e-140, 1e150])
def test_numbers_that_can(factor: float, value: Callable[..., float]) -> None:
    x = torch.linspace(0.1, 1, 48, dtype=torch.float64).view(2, 3, 8)
    with nl.record(model := nn.Sequential(Scales(factor))) as recorder:
        model(x)
    rms = value(recorder.table(), site="output", quantity="rms")
    assert rms == pytest.approx(float(x.square().mean().sqrt()) * factor, rel=1e-12)


def test_parameters_and_gradients_that_cannot_be_squared() -> None:
    model = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(1e200)
    with nl.record(model) as recorder:
        model(torch.full((2, 3), 1e170, dtype=torch.float64)).mul(1e-100).sum().backward()
    rows = recorder.table().query("site == ''").set_index("quantity")
    reasons = {"too large to be squared in float64"}
    assert set(rows.loc[["param_rms"], "status"]) == reasons and rows.loc[["param_rms"], "value"].isna().all()
    with nl.record(model := nn.Linear(3, 3, bias=False).double()) as recorder:
        model(torch.full((2, 3), 1e200, dtype=torch.float64)).sum().backward()
    rows = recorder.table().query("site == ''").set_index("quantity")
    assert set(rows.loc[["grad_norm", "grad_rms"], "status"]) == reasons and rows.loc["nonfinite", "value"] == 0
    assert rows.loc[["grad_norm", "grad_rms"], "value"].isna().all()
