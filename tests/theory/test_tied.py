"""A head that is the embedding: its softmax, its gradient and where theory ends."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from normlab import build, data
from normlab.spec import ModelSpec
from normlab.theory import predict
from normlab.theory.batches import geometry_of
from normlab.theory.forward import forward
from normlab.theory.head import head
from normlab.theory.limits import beyond
from normlab.theory.quenched import marked, meeting
from normlab.theory.state import Held
from normlab.theory.tied import tied


@pytest.mark.parametrize("variance", [0.5, 4.0])
@pytest.mark.parametrize("mean", [0.0, 3.0, 9.0])
def test_a_softmax_with_one_shifted_logit(mean: float, variance: float) -> None:
    rng, classes, extra = np.random.default_rng(0), 40, 0.3
    logits = rng.standard_normal((40_000, classes)) * variance**0.5
    logits[:, 0] = mean + rng.standard_normal(40_000) * (variance + extra) ** 0.5
    grown = np.exp(logits)
    p = grown / grown.sum(axis=1, keepdims=True)
    found = marked(classes, mean, extra, variance)
    assert found.own == pytest.approx(p[:, 0].mean(), rel=0.03)
    assert found.square == pytest.approx((p[:, 0] ** 2).mean(), rel=0.05)
    assert found.others == pytest.approx((p[:, 1:] ** 2).sum(axis=1).mean(), rel=0.04)
    assert found.log == pytest.approx(np.log(grown.sum(axis=1)).mean(), abs=0.03)


@pytest.mark.parametrize("variance", [0.5, 4.0, 25.0])
def test_two_softmaxes_that_share_a_part_of_their_logits(variance: float) -> None:
    rng, classes = np.random.default_rng(1), 64
    for part in (0.0, 0.35, 0.8, 1.0):
        common = rng.standard_normal((20_000, classes)) * (part * variance) ** 0.5
        both = []
        for _ in range(2):
            grown = np.exp(common + rng.standard_normal(common.shape) * ((1 - part) * variance) ** 0.5)
            both.append(grown / grown.sum(axis=1, keepdims=True))
        found = meeting(classes, np.array([part * variance]), np.array([variance]))
        assert found[0] == pytest.approx((both[0] * both[1]).sum(axis=1).mean(), rel=0.06)


def test_errors_are_those_of_logits_drawn_with_the_embedding() -> None:
    """h = s·√d·e_token + noise of its own: logits, softmax and errors are then drawn, not expanded."""
    spec = ModelSpec(depth=1, width=96, vocab=32, tie_embeddings=True, norm="rmsnorm", attention="none")
    tokens, targets = data.random_batch(batch=1, tokens=10, seed=3, vocab=32)
    walked = forward(spec, geometry_of(spec, (tokens, targets), 0))
    found = tied(spec, walked.out, walked.held, walked.geometry)
    generator, total, loss = torch.Generator().manual_seed(0), torch.zeros(10, 10), 0.0
    kept = float(walked.held.first.mean())
    root = torch.linalg.cholesky(torch.tensor(walked.out[0] - kept**2 * walked.geometry.equal_inputs[0]).float())
    for _ in range(600):
        table = torch.randn(32, 96, generator=generator) / 96**0.5
        h = kept * 96**0.5 * table[tokens[0]] + root @ torch.randn(10, 96, generator=generator)
        logits = h @ table.T
        errors = logits.softmax(dim=-1) - torch.nn.functional.one_hot(targets[0], 32)
        total += errors @ errors.T / 600
        loss += float(torch.nn.functional.cross_entropy(logits, targets[0])) / 600
    assert found.loss == pytest.approx(loss, rel=0.02)
    assert np.abs(found.products[0] - total.numpy()).max() < 0.06


def test_where_nothing_is_held_of_the_embedding_the_head_is_an_untied_one() -> None:
    spec = ModelSpec(depth=2, width=64, tie_embeddings=True)
    walked = forward(spec, geometry_of(spec, data.text_batch(batch=2, tokens=12, seed=0), 0))
    nothing = replace(walked, held=Held(0.0, 0.0, 0.0))
    plain = replace(walked, spec=replace(spec, tie_embeddings=False, init_options={}, init="fan-in"))
    np.testing.assert_allclose(head(nothing).gradient, head(plain).gradient, rtol=0.02, atol=1e-6)
    assert head(nothing).loss == pytest.approx(head(plain).loss, rel=1e-3)


def test_the_table_gets_both_gradients() -> None:
    """Against measured models, whose head still sees some of the token that it reads."""
    spec = ModelSpec(depth=8, width=128, tie_embeddings=True)
    batch = data.text_batch(batch=1, tokens=48, seed=1)
    expected = predict(spec, batch, jacobian=False)
    row = expected[expected["role"] == "embed+head"]
    logs, losses = [], []
    for seed in range(6):
        model = build(spec, seed=seed)
        loss = model.loss(*batch)
        loss.backward()
        logs.append(float(model.head.weight.grad.norm().log()))
        losses.append(loss.item())
    assert row["value"].item() == pytest.approx(np.exp(np.mean(logs)), rel=0.06)
    assert expected[expected["quantity"] == "loss"]["value"].item() == pytest.approx(np.mean(losses), rel=0.02)
    assert not (expected["role"] == "head").any()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"depth": 2}, "still the embedding"),
        ({"depth": 16, "placement": "residual"}, "two streams"),
        ({"depth": 16, "norm": "dyt"}, "pointwise norm"),
        ({"depth": 16, "embed_norm": True}, "behind the embedding"),
        ({"depth": 16, "embed_std": 0.5}, "variance above 4"),
    ],
)
def test_where_a_tied_head_has_no_theory_a_row_says_why(fields: dict[str, object], reason: str) -> None:
    rows = predict(ModelSpec(**({"width": 64, "tie_embeddings": True} | fields)), 1, 8)
    lost = rows[rows["status"].astype(str).str.startswith("no theory")]
    assert len(lost) == 1 and reason in lost["status"].iloc[0]
    assert not (rows["site"].astype(str).str.endswith("_grad")).any()


def test_logits_beyond_what_is_tested_have_no_gradients_and_still_a_stream() -> None:
    large = ModelSpec(depth=2, width=64, init="fan-in", init_options={"q": 2.0, "k": 2.0})
    rows = predict(large, 1, 16)
    assert rows["status"].astype(str).str.contains("attention logits have a variance above 8").any()
    assert (rows[rows["site"] == "stream"]["status"] == "ok").all()
    wide = predict(ModelSpec(depth=2, width=64, init="fan-in", init_options={"head": 7.0}), 1, 16)
    assert wide["status"].astype(str).str.contains("head's logits have a variance above 36").any()
    assert beyond(forward(ModelSpec(depth=2, width=64), geometry_of(ModelSpec(depth=2, width=64), 1, 16))) == ""


@pytest.mark.parametrize("gain", [1.0, 4.0])
def test_a_head_with_large_logits_is_predicted(gain: float) -> None:
    spec = ModelSpec(depth=2, width=96, init="fan-in", init_options={"head": gain}, attention="uniform")
    batch = data.random_batch(batch=1, tokens=32, seed=2)
    rows = predict(spec, batch, jacobian=False)
    logs = []
    for seed in range(6):
        model = build(spec, seed=seed)
        model.loss(*batch).backward()
        logs.append(float(model.head.weight.grad.norm().log()))
    assert rows[rows["role"] == "head"]["value"].item() == pytest.approx(np.exp(np.mean(logs)), rel=0.05)
