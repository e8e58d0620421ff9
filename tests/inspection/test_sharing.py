"""Blocks that run with the parameters of others are named, with the block at which those stand."""

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.inspection import Inspection
from normlab.inspection.sharing import Shared, shared_by
from normlab.recording import Address, Observed, Parameter, Port, SitePlan


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


class Recurrent(nn.Module):
    """One block that runs four times, or four blocks."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
        one = Block()
        self.blocks = nn.ModuleList([one if shared else Block() for _ in range(4)])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def said(found: Inspection) -> str:
    (one,) = [one.says for one in found.findings if one.topic == "gradients"]
    return one


def test_a_block_that_runs_four_times_is_said_to_share_its_parameters() -> None:
    torch.manual_seed(0)
    shared = "Blocks 2-4 share the parameters of block 1, where the gradients of all of them stand, as sums."
    found = nl.inspect(Recurrent(shared=True), tokens=8)
    assert said(found).endswith(shared)
    (one,) = [one for one in found.findings if one.topic == "gradients"]
    assert one.to_dict()["numbers"]["shared"][0]["layers"] == [2, 3, 4]
    down = found.table[(found.table["role"] == "down") & (found.table["quantity"] == "grad_norm")]
    assert down["layer"].tolist() == [1]
    assert "share" not in said(nl.inspect(Recurrent(shared=False), tokens=8))


class Partly(nn.Module):
    """No blocks, and one matrix up for all four turns."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head, self.up = nn.Embedding(256, 8), nn.Linear(8, 256), nn.Linear(8, 16, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(4))
        self.downs = nn.ModuleList(nn.Linear(16, 8) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for norm, down in zip(self.norms, self.downs, strict=True):
            x = x + down(self.up(norm(x)).relu())
        return self.head(x)


def test_a_matrix_that_blocks_share_which_are_no_modules_is_named() -> None:
    found = nl.inspect(Partly(), tokens=8)
    shared = (
        "The parameter up of the MLP of blocks 2-4 is shared with block 1, where the gradients of all of them stand"
    )
    assert said(found).endswith(f"{shared}, as sums.")
    up = found.table[(found.table["role"] == "up") & (found.table["quantity"] == "grad_norm")]
    assert up["layer"].tolist() == [1]


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        ([("attn", 1), ("mlp", 1)], (Shared("decoder", "", (2, 3), (1,)),)),
        ([("attn", 1), ("attn", 2), ("attn", 3), ("mlp", 2)], (Shared("decoder", "mlp", (1, 3), (2,)),)),
        ([(name, layer) for name in ("attn", "mlp") for layer in (1, 2, 3)], ()),
    ],
)
def test_what_has_no_parameters_of_its_own(owned: list[tuple[str, int]], expected: tuple[Shared, ...]) -> None:
    places = [Address("decoder", layer, name, "update") for layer in (1, 2, 3) for name in ("attn", "mlp")]
    plan = SitePlan(
        observed=tuple(Observed(at, Port("")) for at in places),
        parameters=tuple(Parameter("w", Address("decoder", layer, name), "down") for name, layer in owned),
    )
    assert shared_by(plan) == expected
