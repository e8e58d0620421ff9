"""What is not finite is named: the weights, where it begins forward and backward, and every block and head."""

import math
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import nn

import normlab as nl
from normlab.inspection import Finding, Inspection


def said(found: Inspection, topic: str) -> Finding:
    (one,) = [one for one in found.findings if one.topic == topic]
    return one


@pytest.fixture(scope="module")
def with_nan(planted: ModuleType) -> Inspection:
    """A query weight of head 1 of block 2 of 6 is not a number: its logits are not, and so the stream is not."""
    model = planted.clean()
    with torch.no_grad():
        planted.mixer(model, 2, "attn").q.weight[8, 3] = torch.nan
    return nl.inspect(model, batch=2, tokens=24)


def test_a_clean_model_says_so(seen: Callable[..., Inspection]) -> None:
    one = said(seen("clean"), "numbers that are not finite")
    assert not one.found and one.says == "None: every number is finite, forward and backward."
    one = said(seen("clean", backward=False), "numbers that are not finite")
    assert not one.found and one.says == "None: every number of the forward pass is finite; no backward pass was run."


def test_a_weight_that_is_not_a_number(with_nan: Inspection) -> None:
    one = said(with_nan, "numbers that are not finite")
    q = "stacks.decoder.blocks.1.sublayers.attn.mixer.q"
    assert one.found and one.numbers["weights"] == [f"{q}.weight"] and one.numbers["first_module"] == q
    assert f"The parameter {q}.weight has entries that are not finite." in one.says
    assert (
        "first after the attention of block 2, in 48 of 48 tokens" in one.says and "The loss is not finite" in one.says
    )
    assert [at["layer"] for at in one.numbers["blocks"]] == [2, 3, 4, 5, 6]
    assert [at["layer"] for at in one.numbers["gradient_blocks"]] == [1, 2, 3, 4, 5, 6]
    first = one.numbers["first_gradient"]
    assert (first["layer"], first["sublayer"], first["site"]) == (6, "mlp", "stream_grad")
    assert "begin in the gradient at the stream after the MLP of block 6" in one.says


def test_every_head_that_is_not_finite_is_named(with_nan: Inspection) -> None:
    one = said(with_nan, "attention logits")
    assert one.found and "all heads of blocks 3-6 and head 1 in the attention of block 2" in one.says
    broken = {(row["layer"], row["head"]) for row in one.numbers["heads"] if row["nonfinite"]}
    assert broken == {(2, 1)} | {(layer, head) for layer in (3, 4, 5, 6) for head in range(4)}
    rows = with_nan.table[(with_nan.table["site"] == "logits") & (with_nan.table["quantity"] == "max_abs")]
    stated = {(row.layer, row.head) for row in rows.itertuples() if row.status == "nonfinite"}
    assert stated == broken


def test_every_other_sentence_says_what_is_left(with_nan: Inspection) -> None:
    assert said(with_nan, "rounding of bf16").says.endswith(
        "No share can be told in blocks 2-6, whose updates are zero or not finite."
    )
    assert (
        "In blocks 2-6 no token has a change: it is zero before, or not finite." in said(with_nan, "idle blocks").says
    )
    assert "After blocks 2-6 tokens with entries that are not finite" in said(with_nan, "growth of the stream").says
    gradients = said(with_nan, "gradients").says
    assert gradients.count("The gradients of") == 1 and "not finite in blocks 1-6" in gradients


def test_an_entry_that_becomes_infinite(seen: Callable[..., Inspection]) -> None:
    found = seen("with_overflow")
    one = said(found, "numbers that are not finite")
    assert one.numbers["first_module"] == "stacks.decoder.blocks.2.sublayers.mlp.mixer" and not one.numbers["weights"]
    assert "first after the MLP of block 3, in 1 of 48 tokens" in one.says
    assert "entries are not finite" in said(found, "range of fp16").says and said(found, "range of fp16").found
    massive = said(found, "massive activations")
    assert not massive.found and "1 after the MLP of block 3, where they begin" in massive.says
    rows = found.table[(found.table["quantity"] == "bulk_rms") & (found.table["layer"] >= 4)]
    assert set(rows["status"].astype(str)) == {"nonfinite"}


class Add(nn.Module):
    """A block whose sum no module computes."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(self.norm(x)).relu()) * self.factor


class Bare(nn.Module):
    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(256, 8), nn.ModuleList(map(Add, factors))
        self.head = nn.Linear(8, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_an_overflow_in_a_bare_sum_and_only_there() -> None:
    torch.manual_seed(0)
    one = said(nl.inspect(Bare(1.0, 1.0, 1e38 * 1e3, 1.0), tokens=8), "numbers that are not finite")
    assert one.found and one.numbers["first_module"] == "blocks.2"
    assert [at["layer"] for at in one.numbers["blocks"]] == [3, 4] and "after the MLP of block 3" in one.says


class Sharp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.nan


def test_a_gradient_that_becomes_infinite_where_the_forward_pass_is_finite(planted: ModuleType) -> None:
    model = planted.clean()
    planted.mixer(model, 4, "mlp").register_forward_hook(lambda module, args, result: Sharp.apply(result))
    one = said(nl.inspect(model, tokens=8), "numbers that are not finite")
    assert one.found and not one.numbers["blocks"] and "Forward" not in one.says and "loss" not in one.says
    first = one.numbers["first_gradient"]
    assert (first["layer"], first["sublayer"]) == (4, "mlp") and first["site"] in ("branch_grad", "input_grad")
    assert [at["layer"] for at in one.numbers["gradient_blocks"]] == [1, 2, 3, 4]


def test_a_mask_that_a_module_gives_is_none() -> None:
    class Mask(nn.Module):
        def forward(self, length: int) -> torch.Tensor:
            return torch.full((length, length), -torch.inf).triu(1)

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask, self.embed, self.head = Mask(), nn.Embedding(256, 16), nn.Linear(16, 256)
            self.body = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
            )

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.embed(tokens), mask=self.mask(tokens.shape[1])))

    found = nl.inspect(Masked(), tokens=8)
    assert not said(found, "numbers that are not finite").found and math.isfinite(found.loss)
