"""Residual sums in other words than +, with what the skip carries."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import normlab as nl

Add = Callable[[Tensor, Tensor], Tensor]
_MASK = torch.arange(10).view(2, 5, 1) % 3 > 0


class Summed(nn.Module):
    """A sum of its own kind around each branch, with a scale, a gate and a matrix of the model's."""

    def __init__(self, add: Callable[["Summed", Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.add, self.last = nn.Embedding(20, 16), add, nn.LayerNorm(16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(3))
        self.seen = nn.Identity()
        self.scale, self.gate = nn.Parameter(torch.full((16,), 0.3)), nn.Linear(16, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = self.add(self, x, block(x))
        return self.last(x)


def _found(add: Callable[[Summed, Tensor, Tensor], Tensor]) -> nl.recording.Architecture:
    return nl.discover(Summed(add).double(), torch.arange(10).view(2, 5))


def _out(function: Callable[..., Tensor], *given: Tensor, size: int = 0) -> Tensor:
    out = torch.empty(size, dtype=given[0].dtype)
    function(*given, out=out)
    return out


def _sum(f: str, skip: str = "x") -> str:
    return f"x ← {skip} + {f}MLP(LN(x))".replace("+ -", "- ")


@pytest.mark.parametrize(
    ("add", "equation"),
    [
        (lambda m, x, f: x - f, _sum("-")),
        (lambda m, x, f: x.sub(f, alpha=2), _sum("-2·")),
        (lambda m, x, f: x.clone().sub_(f), _sum("-")),
        (lambda m, x, f: f - x, _sum("", "-x")),
        (lambda m, x, f: torch.rsub(f, x), _sum("-")),
        (lambda m, x, f: torch.lerp(x, f, 0.3), _sum("0.3·", "0.7·x")),
        (lambda m, x, f: torch.lerp(x, f, m.scale), _sum("scale·", "(1 - scale)·x")),
        (lambda m, x, f: x + 0.2 * (f - x), _sum("0.2·", "0.8·x")),
        (lambda m, x, f: x + m.scale * (f - x), _sum("scale·", "(1 - scale)·x")),
        (lambda m, x, f: x + (f + 0.5 * x), _sum("", "1.5·x")),
        (lambda m, x, f: x + m.scale.sigmoid() * f, _sum("?(scale)·")),
        (lambda m, x, f: torch.addcmul(x, m.scale, f, value=0.5), _sum("scale·0.5·")),
        (lambda m, x, f: torch.addmm(x.flatten(0, 1), f.flatten(0, 1), m.gate.weight).view_as(x), _sum("")),
        (lambda m, x, f: _out(torch.add, x, f), _sum("")),
        (lambda m, x, f: _out(torch.sub, x, f), _sum("-")),
        (lambda m, x, f: torch.stack([x, f]).sum(0), _sum("")),
        (lambda m, x, f: torch.stack([f, x], -1).mean(-1), _sum("0.5·", "0.5·x")),
        (lambda m, x, f: torch.cat([x[None], f[None]]).sum(0), _sum("")),
        (lambda m, x, f: torch.einsum("nbtd->btd", torch.stack([x, f])), _sum("")),
        (lambda m, x, f: sum([x, f]), _sum("")),
        (lambda m, x, f: torch.where(_MASK, x + f, x), _sum("")),
        (lambda m, x, f: torch.where(~_MASK, x, x + f), _sum("")),
    ],
)
def test_a_sum_in_other_words_is_found_with_what_the_skip_carries(
    add: Callable[[Summed, Tensor, Tensor], Tensor], equation: str
) -> None:
    found = _found(add)
    assert f"{equation}    blocks 1-3" in str(found) and found.placement == "pre"
    assert found.stacks[0].final_norm is not None


def test_what_a_mask_keeps_is_said_and_the_stream_is_what_is_left() -> None:
    found = _found(lambda m, x, f: torch.where(_MASK, x + f, x))
    assert found.stacks[0].chosen == (1, 2, 3) and "where a mask says so, tokens keep the stream" in str(found)
    (stream,) = (one for one in found.plan.observed if one.address.site == "stream" and one.address.layer == 3)
    assert stream.port.module == "last"  # what it takes is the result of the mask


def test_a_norm_on_what_a_mask_leaves_is_post() -> None:
    found = _found(lambda m, x, f: nn.functional.layer_norm(torch.where(_MASK, x + f, x), (16,)))
    assert found.stacks[0].chosen == (1, 2, 3) and "LN(x + MLP(LN(x)))    blocks 1-3" in str(found)


def test_a_choice_between_two_updated_streams_is_not_one_between_before_and_after() -> None:
    found = _found(lambda m, x, f: torch.where(_MASK, x + f, x + m.gate(f)))
    assert found.placement == "unknown" and not any(stack.chosen for stack in found.stacks)


@pytest.mark.parametrize(
    "add",
    [
        lambda m, x, f: torch.lerp(x, f, m.gate(x).sigmoid()),
        lambda m, x, f: x * (1 - m.gate(x).sigmoid()) + m.gate(x).sigmoid() * f,
    ],
)
def test_a_skip_with_a_gate_is_found_and_its_placement_unknown(
    add: Callable[[Summed, Tensor, Tensor], Tensor],
) -> None:
    (stack,) = _found(add).stacks
    assert (stack.depth, stack.placement) == (3, "unknown") and {one.skip for one in stack.sublayers} == {"gated"}


@pytest.mark.parametrize(
    "add",
    [
        lambda m, x, f: x + (f - x),
        lambda m, x, f: torch.einsum("n,nbtd->btd", torch.ones(2).double(), torch.stack([x, f])),
        lambda m, x, f: x.flatten(0, 1).index_add(0, torch.arange(10), f.flatten(0, 1)).view_as(x),
    ],
)
def test_what_is_no_sum_or_one_that_is_not_looked_at_has_a_reason(
    add: Callable[[Summed, Tensor, Tensor], Tensor],
) -> None:
    found = _found(add)
    assert not found.stacks and "within a product are not looked at" in found.reason


class Updated(nn.Module):
    """Blocks that give what they subtract."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = x - block(x)
        return x


def test_what_is_subtracted_is_no_update_and_its_rows_say_that_none_shows() -> None:
    model = Updated().double()
    with nl.record(model, sites=nl.discover(model, torch.arange(10).view(2, 5)).plan) as recorder:
        model(torch.arange(10).view(2, 5)).square().mean().backward()
    table = recorder.table()
    updates, branches = (table[(table["site"] == site) & (table["quantity"] == "rms")] for site in ("update", "branch"))
    assert set(updates["status"].astype(str)) == {"no module takes or gives this tensor"}
    x, own = model.table(torch.arange(10).view(2, 5)), []
    for block in model.blocks:
        own.append(float(block(x).detach().square().mean().sqrt()))
        x = x - block(x)
    assert branches.sort_values("layer")["value"].tolist() == pytest.approx(own, rel=1e-12)


def test_what_a_product_is_added_to_zero_times_is_not_looked_at() -> None:
    def scores(x: Tensor) -> Tensor:
        nowhere = torch.full((x.shape[0], x.shape[1], x.shape[1]), torch.nan, dtype=x.dtype)
        return torch.baddbmm(nowhere, x, x.mT, beta=0, alpha=0.25)

    (stack,) = _found(lambda m, x, f: x + m.gate(scores(f).softmax(-1) @ f)).stacks
    assert {part.sublayer for part in stack.sublayers} == {"attn"} and stack.sublayers[0].scores


def test_two_minus_signs_are_a_plus() -> None:
    assert "x ← 0.5·x + 0.5·MLP(LN(x))    blocks 1-3" in str(_found(lambda m, x, f: x - 0.5 * (x - f)))


@pytest.mark.parametrize(
    ("add", "equation"),
    [
        (lambda m, x, f: x + m.seen(0.3 * (f - x)), "x ← 0.7·x + 0.3·MLP(LN(x))    blocks 1-3"),
        (lambda m, x, f: x + 0.3 * m.seen(f - x), "x ← 0.7·x + 0.3·MLP(LN(x))    blocks 1-3"),
        (lambda m, x, f: x + m.seen(f + 0.5 * x), "x ← 1.5·x + MLP(LN(x))    blocks 1-3"),
        (lambda m, x, f: x - 0.5 * m.seen(x - f), "x ← 0.5·x + 0.5·MLP(LN(x))    blocks 1-3"),
    ],
)
def test_a_module_that_sees_a_step_of_a_sum_changes_nothing(
    add: Callable[[Summed, Tensor, Tensor], Tensor], equation: str
) -> None:
    assert equation in str(_found(add))
