"""Streams that go odd ways: gates, masks, factors, skips over blocks, and what is said of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normlab as nl

WIDTH = 16
Way = Callable[["Odd", Tensor, nn.ModuleDict, int], Tensor]
TOKENS = torch.arange(10).view(2, 5)


class Mix(nn.Module):
    """One head of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.packed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.packed(x).chunk(3, -1)
        return self.out((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


def _block() -> nn.ModuleDict:
    norms = {name: nn.LayerNorm(WIDTH) for name in ("one", "two", "three", "four")}
    return nn.ModuleDict({"attn": Mix(), "mlp": _mlp(), **norms})


class Odd(nn.Module):
    """Three blocks around a stream that goes its own way through each."""

    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way, self.table, self.last = way, nn.Embedding(20, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(_block() for _ in range(3))
        self.gate, self.wide, self.across = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, WIDTH), nn.Linear(5, 5)
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(WIDTH)) for _ in range(3))
        self.first: Tensor | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.first = self.table(tokens)
        for number, block in enumerate(self.blocks):
            x = self.way(self, x, block, number)
        return self.last(x)


def _found(way: Way) -> Any:
    (stack,) = (found := nl.discover(Odd(way).double(), TOKENS)).stacks
    assert stack.depth == 3 and stack.final_norm is not None
    return found


def _experts(m: Odd, x: Tensor, b: nn.ModuleDict, n: int) -> Tensor:
    h = b["two"](x := x + b["attn"](b["one"](x)))
    weights = m.gate(h).sigmoid()
    return x + (weights * b["mlp"](h) + (1 - weights) * m.wide(h))


@pytest.mark.parametrize(
    ("way", "placement", "equations"),
    [
        # A gate that a matrix of its own makes, and that reads the stream past the norm.
        (
            lambda m, x, b, n: x + m.gate(x).sigmoid() * b["mlp"](b["one"](x)),
            "pre",
            ["x ← x + g(x)·MLP(LN(x))    blocks 1-3"],
        ),
        # One scale a block, from a list that numbers them.
        (
            lambda m, x, b, n: x + m.scales[n] * b["mlp"](b["one"](x)),
            "pre",
            ["x ← x + scales·MLP(LN(x))    blocks 1-3"],
        ),
        # A factor stands where it is: before a norm, after one, and around parallel branches.
        (lambda m, x, b, n: x + b["one"](0.5 * b["mlp"](x)), "reordered", ["x ← x + LN(0.5·MLP(x))    blocks 1-3"]),
        (lambda m, x, b, n: x + b["mlp"](0.5 * b["one"](x)), "pre", ["x ← x + MLP(0.5·LN(x))    blocks 1-3"]),
        (
            lambda m, x, b, n: x + 0.5 * (b["attn"](b["one"](x)) + b["mlp"](b["one"](x))),
            "parallel",
            ["n = LN(x),  x ← x + 0.5·Attn(n) + 0.5·MLP(n)    blocks 1-3"],
        ),
        # Pre, then Post, without modules for the blocks: the last norm on the sum is not the final norm.
        (
            lambda m, x, b, n: b["two"]((y := x + b["attn"](b["one"](x))) + b["mlp"](y)),
            "mixed",
            ["x ← x + Attn(LN(x))    blocks 1-3", "x ← LN(x + MLP(x))    blocks 1-3"],
        ),
        # Experts that are added up are one branch.
        (_experts, "pre", ["x ← x + Attn(LN(x))    blocks 1-3", "x ← x + MLP(LN(x))    blocks 1-3"]),
    ],
)
def test_what_is_said_of_an_odd_way(way: Way, placement: str, equations: list[str]) -> None:
    found = _found(way)
    assert found.placement == placement
    for equation in equations:
        assert equation in str(found)


def test_a_scale_around_parallel_branches_leaves_no_update_to_read() -> None:
    found = _found(lambda m, x, b, n: x + 0.5 * (b["attn"](b["one"](x)) + b["mlp"](b["one"](x))))
    assert "update" not in {one.address.site for one in found.plan.observed}
    assert not found.plan.residuals


def test_a_gate_of_each_feature_that_reads_past_the_norm_leaves_the_placement_unknown() -> None:
    found = _found(lambda m, x, b, n: x + m.wide(x).sigmoid() * b["mlp"](b["one"](x)))
    assert found.placement == "unknown" and "read the stream through other norms than others do" in str(found)


def test_the_first_stream_added_again_and_again_does_not_end_the_stack() -> None:
    found = _found(lambda m, x, b, n: (y := 0.9 * x + 0.1 * m.first) + b["mlp"](b["one"](y)))
    assert found.placement == "pre" and found.stacks[0].joined == (2, 3)


def test_a_skip_over_blocks_without_modules_of_their_own_takes_no_sum_away() -> None:
    def way(m: Odd, x: Tensor, b: nn.ModuleDict, n: int) -> Tensor:
        x = x + b["attn"](b["one"](x))
        x = x + b["mlp"](b["two"](x))
        return x + m.scales[n] * m.first if n < 2 else x

    found = _found(way)
    assert found.placement == "pre" and found.stacks[0].joined == (2, 3)
    assert [one.sublayer for one in found.stacks[0].sublayers] == ["attn", "mlp"] * 3


def test_two_halves_of_a_stream_that_read_each_other_are_not_taken_for_one() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.matrices = nn.Embedding(20, 16), nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

        def forward(self, tokens: Tensor) -> Tensor:
            one, two = self.table(tokens).chunk(2, -1)
            for first, second in zip(self.matrices[::2], self.matrices[1::2], strict=True):
                one = one + first(two)
                two = two + second(one)
            return torch.cat([one, two], -1)

    found = nl.discover(Halves(), TOKENS)
    assert found.placement == "unknown" and "streams go side by side" in str(found)


def test_what_is_not_understood_between_blocks_is_named() -> None:
    found = nl.discover(Odd(lambda m, x, b, n: F.relu(x + b["mlp"](b["one"](x)))), TOKENS)
    assert found.placement == "unknown" and "relu makes its stream of that of decoder" in str(found)


@pytest.mark.parametrize(
    ("mix", "name"),
    [
        (lambda m, h: torch.fft.fft2(h).real, "encoder"),
        (lambda m, h: m.across(h.mT).mT, "encoder"),
        (lambda m, h: m.wide(h).mean(1, keepdim=True).expand_as(h), "encoder"),
        (lambda m, h: m.wide(h).cumsum(1), "decoder"),
        (lambda m, h: m.wide(F.pad(h, (0, 0, 1, 0))[:, :-1]), "decoder"),
    ],
)
def test_what_mixes_tokens_without_attention_looks_ahead_or_not(
    mix: Callable[[Odd, Tensor], Tensor], name: str
) -> None:
    found = nl.discover(Odd(lambda m, x, b, n: x + mix(m, b["one"](x))), TOKENS)
    assert {stack.name for stack in found.stacks} == {name} and "Mix" in str(found)


def test_what_a_condition_scales_is_no_cross_attention() -> None:
    def way(m: Odd, x: Tensor, b: nn.ModuleDict, n: int) -> Tensor:
        scale = m.wide(m.table(TOKENS[:, :1]))
        return x + b["attn"](b["one"](x) * (1 + scale))

    (stack,) = nl.discover(Odd(way), TOKENS).stacks
    assert {one.sublayer for one in stack.sublayers} == {"attn"} and stack.name == "encoder"


def test_a_second_stream_of_sums_that_nothing_else_reads() -> None:
    def way(m: Odd, x: Tensor, b: nn.ModuleDict, n: int) -> Tensor:
        update = b["mlp"](x)
        m.first = m.first + update
        x = b["one"](x + update)
        return x + b["two"](m.first) if n == 2 else x

    (stack,) = nl.discover(Odd(way), TOKENS).stacks
    assert stack.placement == "residual" and stack.depth == 3
