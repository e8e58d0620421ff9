"""Weights of few bits, which no parameter holds: rows with the reason, and the outputs of their modules."""

import pytest
import torch
from torch import Tensor, nn

import normlab as nl

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


class Packed(nn.Module):
    """An int8 matrix with a scale for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(-32, 32, dtype=torch.int8).view(8, 8))
        self.register_buffer("scales", torch.full((8,), 0.01))
        self.register_buffer("mask", torch.ones(8, 8, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight * self.scales[:, None]).T


def _quantised() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), {nn.Linear})


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning", "ignore:.*:FutureWarning")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: nn.Sequential(Packed(), nn.LayerNorm(8)), "packed as int8, no parameter"),
        (_quantised, "packed by Linear, no parameter"),
    ],
)
def test_packed_weights_have_rows_with_a_reason(make: type[nn.Module], reason: str) -> None:
    model = make()
    with nl.record(model) as recorder:
        model(X)
    table, coverage = recorder.table(), recorder.coverage()
    rows = table[table["name"] == "0.weight"]
    assert set(rows["quantity"]) == {"param_rms", "grad_norm", "grad_rms", "nonfinite"}
    assert set(rows["status"].astype(str)) == {reason} and rows["value"].isna().all()
    assert list(coverage[coverage["name"] == "0.weight"]["status"]) == [reason]
    assert not table["name"].astype(str).str.contains("mask|_packed").any()
    (rms,) = table[(table["name"] == "0") & (table["quantity"] == "rms")]["value"]
    assert rms == pytest.approx(float(model[0](X).square().mean(-1).mean().sqrt()), rel=1e-6)
