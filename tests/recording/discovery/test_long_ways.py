"""Streams that go on with something else, in another layout, and past what only training does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl

WIDTH = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def update(self, x: Tensor) -> Tensor:
        return self.down(self.up(self.norm(x)).relu())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.update(x)


class Model(nn.Module):
    def __init__(self, way: Callable[[nn.ModuleList, Tensor], Tensor]) -> None:
        super().__init__()
        self.way = way
        self.table, self.norm, self.head = nn.Embedding(20, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 20)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.way(self.blocks, self.table(tokens))))


def _tokens() -> Tensor:
    return torch.arange(10).view(2, 5)


def _made(way: Callable[[nn.ModuleList, Tensor], Tensor]) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model(way).double()


def _u_net(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    one = blocks[0](x)
    two = blocks[1](one)
    return blocks[3](blocks[2](two + two) + one)


def _recorded(model: nn.Module, plan: Any) -> Any:
    with nl.record(model, sites=plan) as recorder:
        model(_tokens()).square().mean().backward()
    return recorder.table()


def test_an_earlier_stream_that_is_added_does_not_end_the_stack(value: Callable[..., float]) -> None:
    model = _made(_u_net)
    found = nl.discover(model, _tokens())
    (stack,) = found.stacks
    assert (stack.placement, stack.depth, stack.joined) == ("pre", 4, (3, 4))
    assert stack.final_norm is not None and "added to the stream before blocks 3-4" in str(found)
    table = _recorded(model, found.plan)
    first, second, third, fourth = model.blocks
    x = model.table(_tokens())
    one = x + first.update(x)
    two = one + second.update(one)
    three = 2 * two + third.update(2 * two)
    four = three + one + fourth.update(three + one)
    for layer, stream in enumerate((one, two, three, four), 1):
        recorded = value(table, site="stream", quantity="mean_square", layer=layer, sublayer="mlp")
        assert recorded == pytest.approx(float(stream.detach().square().mean()), rel=1e-12)


def test_a_final_norm_that_takes_the_axes_in_the_other_order() -> None:
    def tokens_first(blocks: nn.ModuleList, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        for block in blocks:
            x = block(x)
        return x.transpose(0, 1)

    model = _made(tokens_first)
    found = nl.discover(model, _tokens())
    assert found.stacks[0].final_norm is not None and found.stacks[0].final_norm.path == "norm"
    table = _recorded(model, found.plan)
    final = table[(table["site"] == "final") & (table["quantity"] == "mean_square")]["value"]
    expected = model.norm(model.way(model.blocks, model.table(_tokens()))).detach()
    assert final.tolist() == pytest.approx([float(expected.square().mean())], rel=1e-12)


def test_a_final_norm_that_ran_before_for_an_early_exit() -> None:
    model = _made(lambda blocks, x: blocks[1](blocks[0](x)))

    class Exits(Model):
        def forward(self, tokens: Tensor) -> Tensor:
            x = self.way(self.blocks, self.table(tokens))
            self.exit = self.head(self.norm(x)).detach()
            return self.head(self.norm(x))

    exits = Exits(model.way).double()
    (stack,) = nl.discover(exits, _tokens()).stacks
    assert stack.final_norm is not None and stack.final_norm.path == "norm"


def test_stochastic_depth_is_no_factor() -> None:
    class Dropped(Block):
        def forward(self, x: Tensor) -> Tensor:
            kept = (torch.rand(x.shape[0], 1, 1) > 0.5).to(x)
            return x + self.update(x) * kept / 0.5

    model = nn.Sequential(*(Dropped() for _ in range(3))).train()
    found = nl.discover(model, torch.randn(2, 5, WIDTH))
    assert found.placement == "pre" and "x ← x + MLP(LN(x))    blocks 1-3" in str(found)


def test_terms_of_a_sum_are_compared_where_their_modules_run_again(value: Callable[..., float]) -> None:
    class Twice(nn.Module):
        """Table and norm run for both streams, so that nothing that runs once shows the first skip in time."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.one, self.two = nn.Embedding(20, WIDTH), nn.ModuleList([Block()]), nn.ModuleList([Block()])
            self.two[0].norm = self.one[0].norm

        def forward(self, tokens: Tensor) -> Tensor:
            return self.two[0](self.table(tokens.flip(1))) * self.one[0](self.table(tokens))

    model = Twice().double()
    table = _recorded(model, nl.discover(model, _tokens()).plan)
    for stack, block, tokens in (("decoder", model.two[0], _tokens().flip(1)), ("decoder-2", model.one[0], _tokens())):
        skip = model.table(tokens)
        expected = (block.update(skip).square().sum() / skip.square().sum()).sqrt()
        recorded = value(table, site="update", quantity="update_ratio", stack=stack)
        assert recorded == pytest.approx(float(expected.detach()), rel=1e-12)
