"""Streams with entries that are not finite: where they begin, on which side, and what can still be compared."""

import math
from types import ModuleType

import pytest
import torch
from torch import Tensor

import normlab as nl
from normlab.inspection import Comparison, compare_runs
from normlab.inspection.diverging import shares_apart
from normlab.models import Transformer
from normlab.table import from_rows

TOKENS = 16


def compared(one: Transformer, two: Transformer) -> Comparison:
    return nl.compare(one, two, tokens=TOKENS)


def spoilt(model: Transformer, layer: int, value: float = float("nan")) -> Transformer:
    """One row of a block's last matrix is not finite, and so one entry of each token is not."""
    with torch.no_grad():
        model.stack("decoder").blocks[layer - 1].sublayers["mlp"].mixer.down.weight[3] = value
    return model


@torch.no_grad()
def after_blocks(model: Transformer) -> list[Tensor]:
    """The stream after each block, the embedding first."""
    tokens, _ = nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)
    xs = [model.stack("decoder").embedding(tokens)]
    for block in model.stack("decoder").blocks:
        xs.append(block(xs[-1]))
    return xs


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_first_place_that_is_not_finite_is_named_with_its_side(planted: ModuleType, value: float) -> None:
    found = compared(planted.clean(), spoilt(planted.clean(), 3, value))
    first = found.broken[0]
    assert (first.at.layer, first.at.sublayer, first.a, first.b, first.differ) == (3, "mlp", 0, 2 * TOKENS, 2 * TOKENS)
    assert first.of == 2 * TOKENS * 32 and found.to_dict()["nonfinite"][0]["b"] == 2 * TOKENS
    assert found.parts is not None and (found.parts.layer, found.parts.sublayer) == (3, "mlp")
    assert "not finite: after the MLP of block 3, none in A and 32 of 1024 in B." in str(found)
    assert "no finite value" not in str(found) and "undefined" not in set(found.table["status"])


def test_the_same_entries_that_are_not_finite_are_no_difference(planted: ModuleType) -> None:
    found = compared(spoilt(planted.clean(), 3), spoilt(planted.clean(), 3))
    assert found.parts is None and "the same 32 of 1024 in A and B" in str(found) and "to the bit" in str(found)
    added = found.table[found.table["quantity"] == "added"].set_index("layer")
    assert added.loc[3, "value"] == 0  # the other entries are compared
    assert added["value"].isna().to_dict() == {1: False, 2: False, 3: False, 4: True, 5: True, 6: True}
    assert set(added.loc[4:, "status"]) == {"nonfinite"}


def test_a_token_that_is_not_finite_leaves_the_others_to_be_compared() -> None:
    spec = nl.ModelSpec(placement="pre", attention="none", depth=4, width=16)
    one, two = nl.build(spec), nl.build(spec)
    for model in (one, two):
        model.stack("decoder").blocks[1].sublayers["mlp"].mixer.register_forward_hook(
            lambda module, args, x: x.masked_fill((torch.arange(x.shape[1]) == 5)[:, None], torch.inf)
        )
    with torch.no_grad():
        two.stack("decoder").blocks[2].sublayers["mlp"].mixer.down.weight.mul_(1.3)
    found = compared(one, two)
    assert found.parts is not None and found.parts.layer == 3 and "the same 32 of 512" in str(found)
    xs, ys = after_blocks(one), after_blocks(two)
    others = torch.arange(TOKENS) != 5
    share = (ys[3] - xs[3])[:, others].norm(dim=-1) / xs[3][:, others].norm(dim=-1)
    (added,) = found.table.query("quantity == 'added' and layer == 3")["value"]
    assert added == pytest.approx(float(share.quantile(0.5)), rel=1e-5)


def test_a_token_that_only_one_has_finite_counts_as_infinitely_far() -> None:
    x = torch.ones(1, 4, 2)
    y = x.clone()
    y[0, 0, 0], y[0, 1, 1] = torch.nan, -torch.inf
    assert shares_apart(x, y, x).median == math.inf  # the mean of the two middle ones: 0 and ∞
    assert shares_apart(y, y, y) == (0, 0, (0, 0))
    y[0, 1] = 3
    assert shares_apart(x, y, x) == (1.0, math.inf, (0, 0))  # of 0, 0, 2 and ∞
    assert shares_apart(y[:, :1], y[:, :1] + 1, y[:, :1]).median == 1  # of the entry beside the NaN
    assert shares_apart(0 * x, 0 * x, 0 * x).worst == 0 and math.isnan(shares_apart(*[x * torch.nan] * 3).median)


def test_the_worst_token_is_found_in_its_sequence() -> None:
    x = torch.ones(3, 5, 2)
    y = x.clone()
    y[1, 4], y[2, 0], y[2, 1] = 3, 2, 0
    x[2, 1] = y[2, 1]  # a token that is zero in both is left out
    assert shares_apart(x, y, x) == (0.0, 2.0, (1, 4))


def test_streams_that_are_not_finite_in_both_runs_are_named(planted: ModuleType) -> None:
    run = nl.inspect(spoilt(planted.clean(), 3), tokens=TOKENS).table
    found = compare_runs(run, run, "one", "one")
    assert found.parts is None and found.broken[0].a == found.broken[0].b == 2 * TOKENS
    assert "after the MLP of block 3, 32 in A and 32 in B. Such places of runs are not compared." in str(found)


def test_the_encoder_comes_before_the_decoder() -> None:
    place = {"layer": 0, "sublayer": "embed", "site": "stream", "quantity": "divergence", "value": 0.5}
    table = from_rows([{"stack": stack, **place} for stack in ("decoder", "encoder")])
    parts = Comparison("one", "two", "models", table, 0.1).parts
    assert parts is not None and parts.stack == "encoder"
