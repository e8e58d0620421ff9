import numpy as np
import pytest
import torch

from normlab.data import random_batch
from normlab.models import build
from normlab.recording import record
from normlab.spec import ModelSpec
from normlab.theory import predict
from normlab.theory.forward import forward
from normlab.theory.geometry import of_batch


def test_products_of_different_tokens_scatter_as_said() -> None:
    """φ of S6 against the Gram matrices of models (after MLPs alone, where nothing else scatters)."""
    spec = ModelSpec(depth=4, width=64, attention="none", activation="relu")
    batch = random_batch(1, 24, seed=3, vocab=256)
    pairs = of_batch(*batch)
    walked = forward(spec, pairs)
    expected = walked.last[0]
    distinct = pairs.equal_inputs[0] == 0
    streams: list[torch.Tensor] = []
    for seed in range(60):
        model = build(spec, seed=seed)
        model.stacks["decoder"].blocks[-1].register_forward_hook(lambda module, given, out: streams.append(out[0]))
        with torch.no_grad():
            model(batch[0])
    squares = []
    for x in (stream.double() for stream in streams):
        squares.append(((x @ x.T).numpy() / spec.width - expected)[distinct] ** 2)
    apart = pairs.apart(walked.steps[-1].stream)
    measured = np.mean(squares) / apart**2
    assert 0.7 < walked.rough / measured < 1.4


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_gradients_of_queries_and_keys_at_small_width(kind: str) -> None:
    """A11: with n = d/2 scattering products make up a good part of them."""
    spec = ModelSpec(depth=4, width=64, kind=kind)  # type: ignore[arg-type]
    batch = random_batch(1, 32, seed=1)
    logs = []
    for seed in range(24):
        model = build(spec, seed=seed)
        with record(model, sites=["stream"], quantities=["grad_norm"]) as recorder:
            model.loss(*batch).backward()
        rows = recorder.table()
        logs.append(np.log(rows[rows["role"].isin(["q", "k"])].sort_values(["role", "layer"])["value"].to_numpy()))
    theory = predict(spec, batch, jacobian=False)
    expected = np.log(theory[theory["role"].isin(["q", "k"])].sort_values(["role", "layer"])["value"].to_numpy())
    assert np.median(np.abs(np.mean(logs, axis=0) - expected)) < 0.07


@pytest.mark.parametrize(("placement", "attention"), [("pre", "none"), ("pre", "uniform"), ("b2t", "uniform")])
def test_gradients_scatter_as_said(placement: str, attention: str) -> None:
    """S9: all inner norms divide by one stream's mean square, and attention passes on what tokens have in common.

    S10: what goes around a block's sub-layers has none of their scatter.
    """
    spec = ModelSpec(depth=12, width=48, placement=placement, attention=attention)
    batch = random_batch(1, 16, seed=3)
    logs = []
    for seed in range(60):
        model = build(spec, seed=seed)
        with record(model, sites=["stream_grad"], quantities=["l2"]) as recorder:
            model.loss(*batch).backward()
        rows = recorder.table()
        logs.append(np.log(rows[rows["layer"] == 0]["value"].item()))
    theory = predict(spec, batch, jacobian=False)
    start = theory[(theory["site"] == "stream_grad") & (theory["layer"] == 0) & (theory["quantity"] == "l2")]
    assert np.std(logs) == pytest.approx(start["sd_log"].item(), rel=0.25)
