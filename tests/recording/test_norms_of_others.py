"""The parameters of norms that the zoo does not have are gains and biases, whatever they are called."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab import register_norm
from normlab.norms import NORMS, Norm
from normlab.recording.zoo import zoo_plan


class Named(nn.Module):
    """An RMSNorm whose parameters have the names that it is given."""

    def __init__(self, width: int, gain: str, bias: str) -> None:
        super().__init__()
        self.names = gain, bias
        self.register_parameter(gain, nn.Parameter(torch.ones(width)))
        self.register_parameter(bias, nn.Parameter(torch.zeros(width)))

    def forward(self, x: Tensor) -> Tensor:
        gain, bias = (self.get_parameter(name) for name in self.names)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * gain + bias


@pytest.mark.parametrize(("gain", "bias"), [("scale", "bias"), ("weight", "beta"), ("gamma", "b")])
def test_what_stands_in_a_norm_is_its_gain_or_bias(
    gain: str, bias: str, monkeypatch: pytest.MonkeyPatch, value: Callable[..., float]
) -> None:
    monkeypatch.setattr(NORMS, "_entries", dict(NORMS.items()))
    register_norm(Norm(name="named", equation="", source="", build=lambda width, *, eps: Named(width, gain, bias)))
    options: dict[str, Any] = dict(depth=2, width=16, heads=2, vocab=23, context=12)
    model = nl.build(nl.ModelSpec(placement="layerscale", norm="named", **options), seed=0)
    roles = {parameter.name: parameter.role for parameter in zoo_plan(model).parameters}
    assert {role for name, role in roles.items() if name.endswith(f"norm.{gain}")} == {"norm_gain"}
    assert {role for name, role in roles.items() if name.endswith(f"norm.{bias}")} == {"norm_bias"}
    assert {role for name, role in roles.items() if name.endswith("branch_scale.scale")} == {"branch_scale"}
    tokens = torch.arange(20).view(2, 10)
    with nl.record(model) as recorder:
        model.loss(tokens, tokens).backward()
    here = {"layer": 1, "sublayer": "attn", "quantity": "grad_norm"}
    module = model.stack("decoder").blocks[0].sublayers["attn"]
    for role, parameter in (
        ("norm_gain", module.inner_norm.get_parameter(gain)),
        ("branch_scale", module.branch_scale.scale),
    ):
        assert value(recorder.table(), role=role, **here) == pytest.approx(float(parameter.grad.norm()), rel=1e-6)
