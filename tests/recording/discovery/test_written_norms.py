"""Norms that stand in no module of their own, or in one that runs several times."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normlab as nl

Formula = Callable[[Tensor, Tensor], Tensor]


class Block(nn.Module):
    """A Pre block whose norm is a function of the stream and a gain."""

    def __init__(self, norm: Formula) -> None:
        super().__init__()
        self.norm, self.g = norm, nn.Parameter(torch.rand(16) + 0.5)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x, self.g)).relu())


def _rms(x: Tensor, gain: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain


def _float32(x: Tensor, gain: Tensor) -> Tensor:
    wide = x.float()
    return (1 + gain) * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def _layer(x: Tensor, gain: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain


NORMS: dict[str, tuple[Formula, str]] = {
    "rms": (_rms, "rmsnorm, over 16, eps 1e-06"),
    "in float32": (_float32, "rmsnorm, over 16, gain 1 + w, eps 1e-05"),
    "mean first": (_layer, "layernorm, over 16, eps 1e-05"),
    "torch's rms_norm": (lambda x, gain: F.rms_norm(x, (16,), gain), "rmsnorm, over 16, eps 2e-16"),
    "torch's layer_norm": (lambda x, gain: F.layer_norm(x, (16,), gain), "layernorm, over 16, eps 1e-05"),
    "normalize": (lambda x, gain: F.normalize(x, dim=-1) * gain, "l2norm, over 16, eps 0"),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_without_a_module_is_found_with_its_gain(name: str) -> None:
    formula, words = NORMS[name]
    model = nn.Sequential(*(Block(formula) for _ in range(3))).double()
    found = nl.discover(model, torch.randn(2, 5, 16, dtype=torch.float64))
    assert found.placement == "pre" and len(found.norms) == 3
    assert str(found.norms[0].kind).startswith(words.split(", eps")[0])
    if name != "normalize":  # it has no ε, but a least length
        assert str(found.norms[0].kind) == words
    roles = {parameter.name: parameter.role for parameter in found.plan.parameters}
    assert roles["0.g"] == roles["2.g"] == "norm_gain"


@pytest.mark.parametrize("power", [2, 4])
def test_what_normalises_nothing_is_not_a_norm(power: int) -> None:
    def gated(x: Tensor, gain: Tensor) -> Tensor:
        return x * torch.sigmoid(x.pow(power).mean(-1, keepdim=True)) * gain

    found = nl.discover(nn.Sequential(*(Block(gated) for _ in range(2))), torch.randn(2, 5, 16))
    assert not found.norms and found.placement == "unknown"
    assert "x ← x + MLP(?(x))    blocks 1-2" in str(found)


def test_positions_of_norms_in_one_module_are_their_own() -> None:
    class Both(Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + F.layer_norm(self.down(self.up(F.rms_norm(x, (16,))).relu()), (16,))

    found = nl.discover(nn.Sequential(*(Both(_rms) for _ in range(2))), torch.randn(2, 5, 16))
    assert found.placement == "peri"
    assert [(norm.position, norm.kind.name) for norm in found.norms] == [
        ("inner", "rmsnorm"),
        ("output", "layernorm"),
    ] * 2


class Loop(nn.Module):
    """One block that runs four times, each time on the stream and an embedding of the turn."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.turn = nn.Embedding(20, 16), nn.Embedding(4, 16)
        self.norm, self.last = nn.RMSNorm(16, eps=1e-6), nn.RMSNorm(16, eps=1e-6)
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for turn in range(4):
            x = x + self.turn.weight[turn]
            x = x + self.down(self.up(self.norm(x)).relu())
        return self.head(self.last(x))


def test_a_looped_block_is_one_stack_with_its_norm(squares: Callable[..., tuple[float, float]]) -> None:
    model, tokens = Loop().double(), torch.arange(10).view(2, 5)
    found = nl.discover(model, tokens)
    (stack,) = found.stacks
    assert (stack.placement, stack.depth, stack.joined) == ("pre", 4, (2, 3, 4))
    assert "something else is added to the stream before blocks 2-4" in str(found)
    assert stack.final_norm is not None and stack.final_norm.path == "last"
    roles = {parameter.name: parameter.role for parameter in found.plan.parameters}
    assert (roles["norm.weight"], roles["last.weight"]) == ("norm_gain", "norm_gain")
    with nl.record(model, sites=found.plan) as recorder:
        model(tokens).square().mean().backward()
    table = recorder.table()
    assert squares(model, table)[0] == pytest.approx(squares(model, table)[1], rel=1e-9)
    x = model.table(tokens)
    rows = table[(table["site"] == "update") & (table["quantity"] == "mean_square")]
    for turn, (_, row) in enumerate(rows.sort_values("layer").iterrows()):
        x = x + model.turn.weight[turn]
        update = model.down(
            model.up(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * model.norm.weight).relu()
        )
        x = x + update
        assert row["value"] == pytest.approx(float(update.detach().square().mean()), rel=1e-12)
    assert len(rows) == 4
