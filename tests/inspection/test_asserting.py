"""Conditions: the grammar, what they select, and one sentence for each way in which they can be wrong."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch

import normlab as nl
from normlab.errors import DataError
from normlab.inspection import Inspection, check, check_recorded, outcome, parse
from normlab.table import from_rows


@pytest.fixture
def table() -> pd.DataFrame:
    """A stream of 3 blocks whose median rms is 1, 2, ... in the order of the sub-layers; 0 at the embedding."""
    places = [(0, "embed"), *((layer, name) for layer in (1, 2, 3) for name in ("attn", "mlp"))]
    at = [{"stack": "decoder", "layer": layer, "sublayer": name} for layer, name in places]
    rows = [{**one, "site": "stream", "quantity": "median_rms", "value": float(i)} for i, one in enumerate(at)]
    rows += [{**one, "role": "down", "quantity": "grad_norm", "value": 10.0} for one in at if one["sublayer"] == "mlp"]
    rows += [{"quantity": "loss", "value": 2.5}]
    rows += [{**at[1], "site": "update", "quantity": "update_ratio", "value": math.nan, "status": "not observed"}]
    return from_rows(rows)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("stream.median_rms@last == 6", True),
        ("stream.median_rms@last < 6", False),
        ("stream.median_rms@first == 2", True),
        ("stream.median_rms@0 <= 0", True),
        ("stream.median_rms >= 2", True),  # after each block: 2, 4, 6
        ("stream.median_rms > 2", False),
        ("stream.median_rms:attn@2 == 3", True),
        ("stream.median_rms@2-3>=4", True),
        ("stream.median_rms@all != 4", False),
        ("down.grad_norm@last == 1e1", True),
        ("loss<2.6", True),
        ("loss > +2.5", False),
    ],
)
def test_a_condition_speaks_of_the_rows_it_names(table: pd.DataFrame, text: str, holds: bool) -> None:
    found = check(parse(text), table)
    assert found.holds is holds and found.says.startswith(f"{text}: {'holds' if holds else 'fails'}")


def test_of_several_rows_that_fail_the_farthest_is_named(table: pd.DataFrame) -> None:
    assert check(parse("stream.median_rms < 3"), table).says.endswith(
        "fails in the MLP of block 3 (6.00), and in 1 more of 3 rows"
    )
    assert "block 1 (2.00)" in check(parse("stream.median_rms > 5"), table).says


@pytest.mark.parametrize("given", [3, None, b"loss < 1", ["loss < 1"]])
@pytest.mark.usefixtures("unchecked")
def test_a_condition_is_text(given: Any) -> None:
    with pytest.raises(DataError, match="cannot be read: write it as in"):
        parse(given)


class Tilted(torch.nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.gain, self.tilt = (torch.nn.Parameter(torch.ones(width)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.gain + self.tilt)


def test_the_roles_of_a_norm_of_your_own_can_be_named() -> None:
    norm = nl.norms.Norm(
        name="tilted", equation="(g + t) x", source="here", build=lambda width, eps: Tilted(width, eps)
    )
    with pytest.raises(DataError, match="names 'tilt', which is neither"):
        parse("tilt.grad_norm < 1")
    nl.norms.register_norm(norm)
    try:
        assert parse("tilt.grad_norm < 1").what == "tilt"
        with pytest.raises(DataError, match="did you mean 'tilt'"):
            parse("tilst.grad_norm < 1")
        found = nl.inspect(nl.ModelSpec(norm="tilted", depth=2, width=8, heads=2), tokens=8)
        (one,) = found.meeting([parse("tilt.grad_norm@last < 1e9")]).outcomes
        assert one.holds and "holds in 3 rows" in one.says
    finally:
        del nl.norms.NORMS._entries["tilted"]


def test_the_loss_of_a_model_of_no_plan_can_be_named(seen: Callable[..., Inspection]) -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256)
            self.ups = torch.nn.ModuleList(torch.nn.Linear(8, 16) for _ in range(2))
            self.downs = torch.nn.ModuleList(torch.nn.Linear(16, 8) for _ in range(2))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embed(tokens)
            for up, down in zip(self.ups, self.downs, strict=True):
                x = x + down(up(x).relu())
            return self.head(x)

    for found in (nl.inspect(Own(), tokens=8), seen("clean")):
        rows = found.table[found.table["quantity"] == "loss"]
        assert rows["value"].tolist() == [pytest.approx(found.loss)]
        assert check(parse(f"loss < {found.loss + 1}"), found.table).holds


def test_a_row_without_a_value_fails_and_says_why(table: pd.DataFrame) -> None:
    found = check(parse("update.update_ratio < 100"), table)
    assert not found.holds and "not observed" in found.says and "block 1" in found.says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("stream.median_rms@last", "cannot be read"),
        ("stream.median_rms < 1 < 2", "cannot be read"),
        ("stream.median_rmse < 1", "did you mean 'median_rms'"),
        ("stream < 1", "write it as in"),
        ("steam.rms < 1", "did you mean 'stream'"),
        ("q.rms < 1", "quantity of q 'rms': choose one of grad_norm"),
        ("stream.grad_norm < 1", "quantity of stream 'grad_norm'"),
        ("stream_grad.rms < 1", "quantity of stream_grad 'rms': choose one of max_abs, l2"),
        ("loss.rms < 1", "quantity of loss 'rms': choose one of loss"),
        ("stream.rms@decodr:last < 1", "did you mean 'decoder'"),
        ("stream.rms:mpl < 1", "sub-layer 'mpl': choose one of embed"),
        ("stream.rms@end < 1", "give all, first, last, 3 or 2-5"),
        ("stream.rms@5-2 < 1", "give all, first, last, 3 or 2-5"),
        ("stream.rms < many", "no number"),
        ("stream.rms < nan.5", "no number"),
    ],
)
def test_a_bad_condition_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as found:
        parse(text)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stream.median_rms@9 < 1", "asks for block 9, and the model has 3 blocks"),
        ("stream.median_rms@2-4 < 1", "asks for blocks 2-4, and the model has 3 blocks"),
        ("q.grad_norm < 1", "the model has no q, or its grad_norm was not recorded"),
        ("stream.median_rms@encoder:last < 1", "stream is in the decoder only"),
        ("down.grad_norm@0 < 1", "those blocks have no down"),
    ],
)
def test_a_condition_without_rows_is_a_sentence(table: pd.DataFrame, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as error:
        check(parse(text), table)
    found = outcome(parse(text), table)
    assert found.holds is None and found.says == str(error.value) and "\n" not in found.says


@pytest.fixture
def two_stacks() -> pd.DataFrame:
    """An encoder of 2 blocks whose median rms is 10, 20, and a decoder of 3 whose median rms is 1, 2, 3."""
    values = {("encoder", layer): 10.0 * layer for layer in (1, 2)} | {("decoder", layer): layer for layer in (1, 2, 3)}
    return from_rows(
        [
            {
                "stack": stack,
                "layer": layer,
                "sublayer": "mlp",
                "site": "stream",
                "quantity": "median_rms",
                "value": value,
            }
            for (stack, layer), value in values.items()
        ]
        + [{"stack": "decoder", "layer": 3, "sublayer": "cross", "site": "memory", "quantity": "rms", "value": 4.0}]
    )


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("stream.median_rms@encoder:last == 20", True),
        ("stream.median_rms@decoder:last == 3", True),
        ("stream.median_rms@decoder:2 == 2", True),
        ("stream.median_rms@encoder:all >= 10", True),
        ("stream.median_rms < 20", False),
        ("stream.median_rms <= 20", True),  # every block of both
        ("memory.rms@last == 4", True),  # only one stack has it
    ],
)
def test_a_condition_names_the_stack_of_a_model_with_two(two_stacks: pd.DataFrame, text: str, holds: bool) -> None:
    assert check(parse(text), two_stacks).holds is holds


@pytest.mark.parametrize("blocks", ["last", "first", "2", "1-2"])
def test_blocks_of_no_stack_are_refused_with_both_spellings(two_stacks: pd.DataFrame, blocks: str) -> None:
    text = f"stream.median_rms@{blocks} < 100"
    with pytest.raises(DataError, match="does not say which stack") as error:
        check(parse(text), two_stacks)
    spelt = [text.replace("@", f"@{stack}:") for stack in ("encoder", "decoder")]
    assert all(f"{one!r}" in str(error.value) for one in spelt)
    assert all(check(parse(one), two_stacks).holds for one in spelt)


def test_a_failure_names_the_stack(two_stacks: pd.DataFrame) -> None:
    assert (
        "fails in the MLP of block 2 of the encoder (20.0)" in check(parse("stream.median_rms < 20"), two_stacks).says
    )


def test_what_only_the_embedding_has_needs_no_block() -> None:
    row = {"stack": "decoder", "layer": 0, "sublayer": "embed", "role": "embed+head", "quantity": "grad_norm"}
    assert check(parse("embed+head.grad_norm < 2"), from_rows([row | {"value": 1.0}])).holds


def test_a_block_that_repeats_a_sub_layer_ends_with_its_last_turn() -> None:
    at = {"stack": "encoder", "layer": 1, "site": "stream", "quantity": "rms"}
    turns = [("attn", "", 1.0), ("mlp", "", 2.0), ("attn", "attn 2", 3.0), ("mlp", "mlp 2", 4.0)]
    rows = [at | {"sublayer": sublayer, "name": name, "value": value} for sublayer, name, value in turns]
    assert check(parse("stream.rms@last == 4"), from_rows(rows)).holds


def test_every_role_of_the_zoo_can_be_named() -> None:
    from normlab.inspection.conditions import ROLES
    from normlab.norms import NORMS
    from normlab.recording.zoo import zoo_plan

    small = {"depth": 1, "width": 8, "heads": 2, "activation": "swiglu", "bias": True}
    specs = [nl.ModelSpec(**small, norm=norm) for norm in NORMS]
    specs += [nl.ModelSpec(**small, kind="encoder-decoder", tie_embeddings=True)]
    found = {parameter.role for spec in specs for parameter in zoo_plan(nl.build(spec)).parameters}
    assert found <= set(ROLES)


@pytest.mark.parametrize(
    ("text", "backward", "says"),
    [
        ("query.rms < 1", True, "which an inspection does not record: choose one of stream"),
        ("q.grad_norm < 1", False, "speaks of a gradient, and no backward pass is run"),
        ("stream_grad.l2 < 1", False, "speaks of a gradient"),
    ],
)
def test_what_is_never_recorded_is_refused_before_a_run(text: str, backward: bool, says: str) -> None:
    with pytest.raises(DataError, match=says):
        check_recorded(parse(text), backward=backward)
    check_recorded(parse("q.param_rms < 1"), backward=backward)


def test_a_limit_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(DataError, match="no number"):
        parse("stream.rms < nan")
