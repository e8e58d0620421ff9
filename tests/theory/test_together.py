"""Sub-layers that are alike are carried at once where three averages stand for all pairs."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from normlab.placements import Placement, Wiring, register_placement
from normlab.spec import ModelSpec
from normlab.theory import predict
from normlab.theory.backward import at_streams
from normlab.theory.batches import geometry_of
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import averages
from normlab.theory.head import head
from normlab.theory.stacked import stacked
from normlab.theory.way_back import WayBack
from normlab.where import Where

CASES = [
    {},
    {"placement": "post", "bias": True},
    {"placement": "lns", "activation": "swiglu"},
    {"placement": "mix-ln", "norm": "rmsnorm"},
    {"placement": "b2t", "attention": "uniform"},
    {"placement": "residual", "position": "sinusoidal"},
    {"placement": "ngpt", "norm": "rmsnorm", "qk_norm": "l2norm"},
    {"placement": "post", "norm": "dyt"},
    {"parallel": True, "kv_heads": 2, "dropout": 0.1},
    {"parallel": True, "placement": "layerscale", "position": "sinusoidal"},
    {"kind": "encoder-decoder", "encoder_depth": 3, "placement": "post"},
    {"placement": ("b2t", "post", "pre", "b2t", "sub-ln", "post"), "attention": "none"},
    {"placement": "post", "tie_embeddings": True, "embed_std": 1e-3, "final_norm": False},
]


def way(walked: Forward, jacobian: bool) -> WayBack:
    loss = head(walked)
    return WayBack(walked, at_streams(walked, loss.gradient, loss.lost), jacobian=jacobian)


@pytest.mark.parametrize("fields", CASES, ids=lambda fields: ",".join(map(str, fields.values())) or "pre")
def test_what_is_carried_at_once_is_what_is_carried_one_by_one(fields: dict[str, object]) -> None:
    spec = ModelSpec(**({"depth": 6, "width": 48} | fields))
    pairs = averages(geometry_of(spec, 2, 12))
    alone, together = (forward(spec, pairs, together=at_once) for at_once in (False, True))
    jacobian = not spec.two_streams
    ways = [way(walked, jacobian) for walked in (alone, together)]
    expected = {int(back.step.places[0]): back for _, back in ways[0]}
    seen = 0
    for _, back in ways[1]:
        for layer, place in enumerate(back.step.places):
            one = expected[int(place)]
            assert back.step.layers[layer] == one.step.where.layer
            for name, means in one.step.means.items():
                np.testing.assert_allclose(back.step.means[name][layer], means, rtol=1e-10, err_msg=name)
            for name in ("total", "update", "branch", "inputs", "before"):
                np.testing.assert_allclose(getattr(back, name)[layer], getattr(one, name), rtol=1e-10, err_msg=name)
            for role, entries in one.roles.items():
                scale = 1e-14 * pairs.total(np.abs(entries))
                np.testing.assert_allclose(back.roles[role][layer], entries, rtol=1e-10, atol=scale, err_msg=role)
            seen += 1
    assert seen == len(alone.steps) == len(expected)
    np.testing.assert_allclose(ways[1].growth, ways[0].growth, rtol=1e-10)


@pytest.mark.parametrize(
    ("placement", "blocks"),
    [("pre", [range(1, 51)]), ("lns", [[1], range(2, 51)]), ("mix-ln", [range(1, 13), range(13, 51)])],
)
def test_a_deep_model_is_a_few_steps(placement: str, blocks: list[range]) -> None:
    """Numbers that differ by layer, as those of LayerNorm Scaling, make no step of their own, but for 1."""
    spec = ModelSpec(depth=50, width=32, placement=placement)
    steps = forward(spec, averages(geometry_of(spec, 1, 8)), together=True).steps
    assert [step.layers.tolist() for step in steps] == [list(block) for block in blocks for _ in ("attn", "mlp")]


def test_a_placement_of_ones_own_with_numbers_by_layer() -> None:
    def falling(where: Where) -> Wiring:
        return Wiring(inner_norm=True, branch_scale=1 / where.layer, skip_scale=1 - 0.1 / where.layer)

    register_placement(Placement(name="own-falling", equation="", source="", wiring=falling, final_norm=True))
    rows = predict(ModelSpec(depth=3, width=32, placement="own-falling", attention="none"), 1, 8, detail="averages")
    square = rows[(rows["site"] == "stream") & (rows["quantity"] == "mean_square")].set_index("layer")["value"]
    update = rows[(rows["site"] == "branch") & (rows["quantity"] == "mean_square")].set_index("layer")["value"]
    for layer in (1, 2, 3):
        grown = (1 - 0.1 / layer) ** 2 * square[layer - 1] + update[layer] / layer**2
        assert square[layer] == pytest.approx(grown, rel=0.02)


@pytest.mark.parametrize("detail", ["averages", "tokens"])
@pytest.mark.parametrize("fields", [{"parallel": True}, {"kind": "encoder-decoder"}], ids=str)
def test_blocks_that_send_nothing_back_have_a_theory(detail: Any, fields: dict[str, Any]) -> None:
    """A branch of 0 has a gradient of 0, whose logarithm scatters by nothing that could be divided by it."""
    rows = predict(ModelSpec(depth=2, width=32, placement="rezero", **fields), 2, 8, detail=detail)
    assert not rows["status"].astype(str).str.startswith("no theory").any()
    assert np.isfinite(rows["sd_log"].dropna()).all()


@pytest.mark.parametrize("depth", [2, 5, 9])
def test_a_sum_that_cancels_is_an_exact_zero(depth: int) -> None:
    """Keys' gradients of a sequence sum to 0, so a bias of keys has none where averages stand for positions."""
    spec = ModelSpec(depth=depth, width=48, qk_norm="rmsnorm", v_norm="layernorm", bias=True, placement="hybridnorm")
    rows = predict(spec, 2, 12, detail="averages")
    assert set(rows[rows["role"] == "k_bias"]["status"]) == {"exact-zero"}


def test_stacked_keeps_what_is_the_same() -> None:
    one, other = (Wiring(skip_scale=scale, branch_scale=0.5) for scale in (1.5, 2.0))
    both = stacked([one, other])
    assert (both.branch_scale, both.skip) == (0.5, "stream")
    np.testing.assert_array_equal(both.skip_scale, [[1.5], [2.0]])
    np.testing.assert_array_equal(stacked([0.0, np.array([1.0, 2.0])]), [[0, 0], [1, 2]])


def test_a_table_has_the_same_columns_in_both_details() -> None:
    spec = ModelSpec(depth=2, width=32)
    few, all_pairs = (predict(spec, 1, 8, detail=detail) for detail in ("averages", "tokens"))
    pd.testing.assert_series_equal(few.dtypes.astype(str), all_pairs.dtypes.astype(str))
