import math

import numpy as np
import pandas as pd
import pytest

from normlab import build, data
from normlab.errors import SpecError
from normlab.recording import record
from normlab.spec import ModelSpec
from normlab.theory import predict

KEY = ["stack", "layer", "sublayer", "site", "quantity", "role"]
TEXT = {name: object for name in ("stack", "sublayer", "site", "quantity", "role", "status")}
MEANS = ("token_overlap", "grad_coherence")


def measured(spec: ModelSpec, batch, seeds: int) -> pd.DataFrame:
    tables = []
    for seed in range(seeds):
        model = build(spec, seed=seed)
        with record(model) as recorder:
            model.loss(*batch).backward()
        tables.append(recorder.table().astype(TEXT))
    rows = pd.concat(tables)
    rows = rows[rows["status"] == "ok"]
    with np.errstate(all="ignore"):
        rows["log"] = np.where(rows["quantity"].isin(MEANS), rows["value"], np.log(rows["value"]))
    return rows.groupby(KEY)["log"].agg(["mean", "std"]).reset_index()


def differences(spec: ModelSpec, batch, seeds: int = 5) -> pd.DataFrame:
    predicted = predict(spec, batch, jacobian=False).astype(TEXT)
    predicted = predicted[predicted["status"] == "ok"]
    with np.errstate(all="ignore"):
        predicted["log"] = np.where(predicted["quantity"].isin(MEANS), predicted["value"], np.log(predicted["value"]))
    both = measured(spec, batch, seeds).merge(predicted[[*KEY, "log"]], on=KEY)
    both = both[both["mean"] > -18]  # the bias of keys: 0 but for rounding
    return both.assign(error=(both["mean"] - both["log"]).abs(), se=both["std"] / math.sqrt(seeds))


CASES = [
    {},
    {"placement": "post", "activation": "relu", "position": "rope"},
    {"placement": "peri", "norm": "rmsnorm", "activation": "swiglu"},
    {"placement": "deepnorm", "init": "deepnorm", "qk_norm": "rmsnorm"},
    {"placement": "hybridnorm", "kind": "encoder"},
    {"placement": "residual", "attention": "uniform"},
    {"placement": "sub-ln", "bias": True},
    {"norm": "dyt", "position": "learned", "dropout": 0.1},
    {"parallel": True, "kv_heads": 2},
    {"placement": "ngpt", "norm": "rmsnorm", "qk_norm": "l2norm"},
    {"position": "sinusoidal"},
    {"placement": "residual", "position": "sinusoidal", "attention": "uniform"},
    {"placement": "b2t", "position": "sinusoidal"},
    {"kind": "encoder-decoder", "position": "sinusoidal", "encoder_depth": 2},
    {"kind": "encoder-decoder", "placement": "post", "bias": True},
    {"kind": "encoder-decoder", "attention": "uniform", "activation": "swiglu"},
    {"kind": "encoder-decoder", "placement": "residual", "norm": "rmsnorm", "qk_norm": "rmsnorm"},
    {"kind": "encoder-decoder", "placement": "hybridnorm", "kv_heads": 2},
]


@pytest.mark.parametrize("fields", CASES, ids=lambda fields: ",".join(map(str, fields.values())) or "pre")
@pytest.mark.parametrize("kind", ["random", "text"])
def test_prediction_is_what_is_measured(fields: dict[str, object], kind: str) -> None:
    spec = ModelSpec(**({"depth": 3, "width": 128} | fields))
    draw = data.random_batch if kind == "random" else data.text_batch
    found = differences(spec, draw(batch=2, tokens=24, seed=1))
    assert len(found) > 100
    loose = found["role"].isin(["q", "k", "q_bias", "norm_gain", "norm_bias", "branch_scale"])
    for rows, allowed in ((found[~loose], 0.1), (found[loose], 0.25)):
        for name, group in rows.groupby(["site", "quantity", "role"]):
            assert group["error"].median() < max(allowed, 3 * group["se"].median()), (name, group)


def test_every_measured_gradient_has_a_prediction() -> None:
    spec = ModelSpec(depth=2, width=32, position="learned", bias=True)
    batch = data.random_batch(batch=2, tokens=8)
    model = build(spec)
    with record(model, quantities=["grad_norm", "l2", "rms", "loss", "update_ratio", "branch_gain"]) as recorder:
        model.loss(*batch).backward()
    rows, found = (table.astype(TEXT) for table in (recorder.table(), predict(spec, batch)))
    keys = [tuple(row) for row in rows[KEY].fillna(-1).to_numpy()]
    missing = set(keys) - {tuple(row) for row in found[KEY].fillna(-1).to_numpy()}
    assert not missing


def test_rows_say_that_they_are_theory_and_of_which_model() -> None:
    found = predict(ModelSpec(depth=2, width=32), 2, 8)
    assert set(found["source"]) == {"theory"}
    assert set(found["placement"]) == {"pre"}
    assert set(found["tokens"]) == {8}
    assert found["status"].isin(["ok", "exact-zero"]).all()


def test_growth_per_layer_adds_up_without_mixing() -> None:
    found = predict(ModelSpec(depth=4, width=64, attention="none"), 1, 8)
    apjn = found[(found["quantity"] == "apjn") & (found["layer"] == 0)]["value"].item()
    exponents = found[found["quantity"] == "lyapunov"]["value"]
    assert 2 * exponents.sum() == pytest.approx(math.log(apjn), rel=1e-9)


def test_identity_at_initialisation_has_exact_zeros() -> None:
    found = predict(ModelSpec(depth=2, width=32, placement="rezero"), 1, 8).astype(TEXT)
    down = found[(found["role"] == "down")]
    assert (down["status"] == "exact-zero").all()
    assert found[found["role"] == "branch_scale"]["value"].gt(0).all()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"norm": "batchnorm"}, "statistics over a batch"),
        ({"tie_embeddings": True}, "still the embedding"),
        ({"placement": "none", "depth": 20}, "saturates"),
    ],
)
def test_where_there_is_no_theory_a_row_says_why(fields: dict[str, object], reason: str) -> None:
    found = predict(ModelSpec(**({"depth": 2, "width": 32} | fields)), 1, 8)
    status = found[found["status"].str.startswith("no theory").astype(bool)]
    assert len(status) == 1
    assert reason in status["status"].iloc[0]
    assert math.isnan(status["value"].iloc[0])


def test_an_unknown_or_unfit_detail_is_refused() -> None:
    with pytest.raises(SpecError, match="averages"):
        predict(ModelSpec(depth=2, width=32), 1, 8, detail="few")
    with pytest.raises(SpecError, match="exchangeable"):
        predict(ModelSpec(depth=2, width=32), data.text_batch(batch=1, tokens=8), detail="averages")


def test_post_ln_scatters_and_its_geometric_mean_lies_below() -> None:
    """Without attention the logarithm's variance grows by a layer's share each layer."""
    spec = ModelSpec(depth=16, width=64, placement="post", attention="none", activation="relu")
    batch = data.random_batch(batch=1, tokens=8, seed=1)
    rows = predict(spec, batch, jacobian=False)
    start = rows[(rows["site"] == "stream_grad") & (rows["layer"] == 0) & (rows["quantity"] == "l2")]
    found = measured(spec, batch, 20)
    seen = found[(found["site"] == "stream_grad") & (found["layer"] == 0) & (found["quantity"] == "l2")]
    assert seen["std"].item() == pytest.approx(start["sd_log"].item(), rel=0.5)
    assert seen["mean"].item() == pytest.approx(math.log(start["value"].item()), abs=3 * seen["std"].item() / 20**0.5)


def test_gradients_that_rounding_decides_have_no_theory() -> None:
    theory = predict(ModelSpec(depth=40, width=64, placement="post"), 1, 16, jacobian=False)
    rows = theory[theory["role"].isin(["q", "k"])]
    lost = rows["status"].astype(str).str.contains("rounding decides")
    assert not lost[rows["layer"] < 10].any() and lost[rows["layer"] > 35].all()
    assert (theory[theory["role"] == "v"]["status"] == "ok").all()


def test_one_token_has_a_theory_too() -> None:
    spec = ModelSpec(depth=2, width=32, placement="hybridnorm", position="learned", bias=True, norm="rmsnorm")
    found = predict(spec, 1, 1)
    assert not found["status"].astype(str).str.startswith("no theory").any()
    assert found["value"].notna().all()


def test_a_jacobian_changes_nothing_beside_its_own_rows() -> None:
    spec = ModelSpec(depth=3, width=32, placement="b2t", norm="layernorm")
    batch = data.text_batch(batch=2, tokens=12)
    alone, both = (predict(spec, batch, jacobian=wanted) for wanted in (False, True))
    rest = both[~both["quantity"].isin(["apjn", "lyapunov"])].reset_index(drop=True)
    assert len(both) == len(rest) + 2 * spec.depth
    pd.testing.assert_frame_equal(rest.astype(TEXT), alone.astype(TEXT), check_categorical=False, rtol=1e-12)
