"""What a table says where there is no value, or not of all tokens."""

from typing import Any

import numpy as np
import pytest
import torch
from recorded_parts import Make, Value, micro

import normlab as nl
from normlab.errors import RecordingError


def test_without_a_backward_pass_gradients_say_so(make: Make, batch: Any, value: Value) -> None:
    model = make()
    with nl.record(model) as recorder, torch.no_grad():
        model.loss(*batch)
    table = recorder.table()
    gradients = table[table["site"].astype(str).str.endswith("_grad") | (table["quantity"] == "grad_norm")]
    assert gradients["value"].isna().all() and set(gradients["status"]) == {"no gradient required", "no gradient"}
    assert value(table, layer=1, sublayer="attn", site="stream", quantity="count") == batch[0].numel()
    with nl.record(model) as recorder:
        model.loss(*batch)
    assert set(recorder.table().query("site == 'input_grad'")["status"]) == {"no gradient"}


def test_strict_names_what_was_not_observed(make: Make, batch: Any) -> None:
    model = make()
    with pytest.raises(RecordingError, match="step 0 did not observe .*_grad of decoder attn in layer 1"):
        with nl.record(model, strict=True), torch.no_grad():
            model.loss(*batch)
    with nl.record(model, sites=["stream", "update"], strict=True), torch.no_grad():
        model.loss(*batch)


def test_a_module_that_is_not_called_is_named(make: Make, batch: Any) -> None:
    model = make(final_norm=True)
    with nl.record(model, sites=["final", "stream"]) as recorder:
        model.stacks["decoder"].embedding(batch[0])
    coverage = recorder.coverage()
    final = coverage[coverage["site"] == "final"].iloc[0]
    assert final["expected"] and not final["observed"] and "not called" in final["status"]
    table = recorder.table()
    assert table[table["site"] == "final"]["value"].isna().all() and len(table[table["site"] == "final"]) == 11


def test_two_backward_passes_through_one_forward_pass_are_named(make: Make, batch: Any) -> None:
    model = make()
    with nl.record(model) as recorder:
        loss = model.loss(*batch)
        loss.backward(retain_graph=True)
        loss.backward()
    gradients = recorder.table().query("site == 'input_grad'")
    assert gradients["value"].isna().all() and gradients["status"].str.startswith("several backward passes").all()


def test_a_loss_that_does_not_go_through_forward(make: Make, batch: Any, value: Value) -> None:
    model = make()
    with nl.record(model) as recorder:
        for part in micro(batch, 4):
            model.features(part[0]).square().mean().backward()
    table = recorder.table()
    assert value(table, layer=1, sublayer="mlp", site="stream", quantity="count") == batch[0].numel()
    assert table["call"].isna().all()


def test_tokens_of_one_are_alone(make: Make, batch: Any) -> None:
    model = make()
    with nl.record(model) as recorder:
        model.loss(batch[0][:, :1], batch[1][:, :1]).backward()
    rows = recorder.table().query("quantity == 'token_cosine' or quantity == 'token_overlap'")
    assert rows["value"].isna().all() and set(rows["status"]) == {"one token a sequence"}


def test_no_tokens_at_all(make: Make, batch: Any) -> None:
    model = make()
    with nl.record(model, sites=["stream", "update", "input", "branch"]) as recorder, torch.no_grad():
        model(batch[0][:0])
    rows = recorder.table().query("site != ''")
    counts = rows["quantity"].isin(["count", "nonfinite"])
    assert set(rows[counts]["value"]) == {0.0} and set(rows[~counts]["status"]) <= {"no tokens", "no input"}
    assert rows[~counts]["value"].isna().all()


def test_a_token_that_is_not_finite_spoils_no_other(make: Make, batch: Any, value: Value) -> None:
    model = make(attention="none")
    with torch.no_grad():
        model.stacks["decoder"].embedding.token[5] = float("inf")
    tokens = batch[0]
    with nl.record(model) as recorder, torch.no_grad():
        model(tokens)
    table, here = recorder.table(), {"layer": 2, "sublayer": "mlp", "site": "stream"}
    bad = int((tokens == 5).sum())
    assert bad and value(table, quantity="nonfinite", **here) == 16 * bad
    assert value(table, quantity="count", **here) == tokens.numel() - bad
    rms = table.query("layer == 2 and site == 'stream' and quantity == 'rms'").iloc[0]
    assert np.isfinite(rms["value"]) and rms["status"] == "nonfinite"


def test_pairs_say_that_tokens_were_left_out(make: Make, batch: Any) -> None:
    model = make(attention="none")
    with torch.no_grad():
        model.stacks["decoder"].embedding.token[5] = float("inf")
    with nl.record(model) as recorder, torch.no_grad():
        model(batch[0])
    table = recorder.table()
    pairs = table[table["quantity"].isin(["update_ratio", "alignment", "covariance", "lost_share"])]
    assert len(pairs) == 8 and pairs["value"].notna().all() and set(pairs["status"]) == {"nonfinite"}
