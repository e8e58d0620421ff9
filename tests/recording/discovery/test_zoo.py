"""Discovery on the zoo's models: by their data flow alone it finds what their specs say."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import normlab as nl
from normlab.recording import RecordingWarning, SitePlan

SMALL: dict[str, Any] = dict(depth=2, width=16, heads=4, vocab=31)
#: What the data flow says of each placement: scales on a branch change no placement.
PLACEMENTS = {
    "pre": "pre", "post": "post", "peri": "peri", "reordered": "reordered", "none": "none", "periodic": "mixed",
    "deepnorm": "post", "sub-ln": "pre", "layerscale": "pre", "lns": "pre", "rezero": "none", "skipinit": "none",
    "completep": "pre", "res-post-norm": "reordered", "b2t": "unknown", "hybridnorm": "unknown", "ngpt": "unknown",
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "parallel": dict(parallel=True),
    "gated, rotary, grouped": dict(activation="swiglu", position="rope", norm="rmsnorm", bias=True, kv_heads=2),
    "encoder": dict(kind="encoder", placement="post", position="learned"),
    "encoder-decoder": dict(kind="encoder-decoder"),
    "tied": dict(tie_embeddings=True, qk_norm="rmsnorm"),
    "no attention": dict(attention="none"),
    "normed embedding": dict(position="sinusoidal", embed_norm=True),
}


def _built(**fields: Any) -> nn.Module:
    return nl.build(nl.ModelSpec(**SMALL | fields), seed=0, dtype=torch.float64)


def _table(model: nn.Module, plan: SitePlan | None) -> pd.DataFrame:
    model.zero_grad()
    with nl.record(model, sites=plan) as recorder:
        model.loss(*nl.data.random_batch(batch=2, tokens=5, vocab=31)).backward()
    table = recorder.table()
    return table[table["quantity"] != "loss"]


@pytest.mark.parametrize(("placement", "expected"), PLACEMENTS.items())
def test_the_placement_is_the_specs_and_so_is_every_row(
    placement: str, expected: str, rows_equal: Callable[..., None]
) -> None:
    model = _built(placement=placement)
    found = nl.discover(model)
    assert found.placement == expected
    assert found.stacks[0].depth == 2 and found.stacks[0].name == "decoder"
    rows_equal(_table(model, None), _table(model, found.plan))


@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS)
def test_every_row_is_that_of_the_zoos_own_plan(fields: dict[str, Any], rows_equal: Callable[..., None]) -> None:
    model = _built(**fields)
    rows_equal(_table(model, None), _table(model, nl.discover(model).plan))


def test_both_streams_have_the_rows_of_the_zoos_own_plan() -> None:
    model = _built(placement="residual")
    found = nl.discover(model)
    assert found.placement == "residual" and "second stream" in found.stacks[0].reason
    key = ["layer", "sublayer", "site", "quantity"]
    own, same = (_table(model, plan).set_index(key)["value"] for plan in (None, found.plan))
    rows = same[same.index.get_level_values("site").isin(["stream", "stream2", "update", "stream2_grad"])].dropna()
    assert len(rows[rows.index.get_level_values("site") == "stream2"]) == 4 * 11
    assert rows.to_numpy() == pytest.approx(own[rows.index].to_numpy(), rel=1e-12)


@pytest.mark.parametrize("norm", ["dyt", "derf"])
def test_what_squashes_in_place_of_a_norm_is_placed_like_one(norm: str, rows_equal: Callable[..., None]) -> None:
    model = _built(norm=norm)
    found = nl.discover(model)
    assert found.placement == "pre" and len(found.norms) == 5
    assert {norm_.kind.name for norm_ in found.norms} == {norm}
    sites = [table[table["site"] != ""] for table in (_table(model, None), _table(model, found.plan))]
    rows_equal(*sites)


def test_uniform_attention_mixes_tokens_without_roles_but_all_of_them_together_are_right() -> None:
    model = _built(attention="uniform")
    own, found = (
        _table(model, plan).set_index(["sublayer", "layer", "role", "quantity"])["value"]
        for plan in (None, nl.discover(model).plan)
    )
    for layer in (1, 2):
        assert found["attn", layer, "all", "grad_norm"] == pytest.approx(
            own["attn", layer, "all", "grad_norm"], rel=1e-12
        )


def test_the_qk_norms_and_the_number_of_norms() -> None:
    found = nl.discover(_built(qk_norm="rmsnorm", norm="rmsnorm"))
    assert found.stacks[0].qk_norm == "heads" and len(found.norms) == 2 * 4 + 1


def test_blocks_that_are_copies() -> None:
    model = _built(placement="pre", depth=3)
    blocks = model.stack("decoder").blocks
    blocks[2].load_state_dict(blocks[0].state_dict())
    assert nl.discover(model).stacks[0].copies == ((1, 3),)


def test_discovery_leaves_no_trace(squares: Callable[..., Any]) -> None:
    model = _built(placement="pre", dropout=0.5)
    state = torch.get_rng_state()
    with pytest.warns(RecordingWarning, match="nothing of the model ran"), nl.record(model) as recorder:
        nl.discover(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not recorder.coverage()["observed"].any()
    assert all(parameter.grad is None for parameter in model.parameters())
