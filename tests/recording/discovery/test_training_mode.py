"""What only a pass in training mode does, such as dropping layers, is said."""

import torch
from torch import Tensor, nn

import normlab as nl


class Block(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.factor = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8), factor

    def forward(self, x: Tensor) -> Tensor:
        update = self.down(self.up(self.norm(x)).relu())
        # What DropPath does to a sample that it keeps.
        return x + (update.div(self.factor) if self.training else update)


class Model(nn.Module):
    """Leaves one block out in training, as LayerDrop may."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.table, self.blocks = nn.Embedding(9, 8), nn.ModuleList(Block(factor) for _ in range(3))
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for number, block in enumerate(self.blocks):
            if not (self.training and number == 1):
                x = block(x)
        result: Tensor = self.norm(x)
        return result


def test_blocks_that_are_dropped_are_named() -> None:
    model, tokens = Model(), torch.arange(8).view(2, 4)
    found = nl.discover(model.train(), tokens)
    assert found.skipped == ("blocks.1",) and found.stacks[0].depth == 2
    said = "1 block did not run and stands in no count: blocks.1; the model is in training mode, and model.eval() drops"
    assert said in str(found)
    whole = nl.discover(model.eval(), tokens)
    assert whole.skipped == () and whole.stacks[0].depth == 3 and "did not run" not in str(whole)


def test_factors_that_make_up_for_what_is_dropped_are_doubted() -> None:
    model, tokens = Model(0.5), torch.arange(8).view(2, 4)
    assert "factors above 1 may make up for what is dropped" in str(nl.discover(model.train(), tokens))
    assert "factors above 1" not in str(nl.discover(model.eval(), tokens))


def test_a_shared_block_and_experts_without_tokens_are_not_called_dropped() -> None:
    class Shared(Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([self.blocks[0]] * 2)

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts, self.norm = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.LayerNorm(8)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = x + self.experts[0](self.norm(x))
            return result

    tokens = torch.arange(8).view(2, 4)
    assert nl.discover(Shared().eval(), tokens).skipped == ()
    assert nl.discover(nn.Sequential(nn.Embedding(9, 8), Experts(), Experts()), tokens).skipped == ()
