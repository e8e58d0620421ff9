"""What is recorded in parts, scaled or masked is what the whole would be."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from recorded_parts import Make, Value, assert_same_values, micro, run
from torch import nn

import normlab as nl
from normlab.errors import RecordingError


def test_micro_batches_merge_exactly(make: Make, batch: Any) -> None:
    model = make(dtype=torch.float64)
    whole = run(model, batch).table()
    model.zero_grad()
    parts = run(model, *micro(batch, 2)).table()
    # The gradients of micro-batches are those of a quarter of the loss each: l2 over all tokens stays.
    assert_same_values(whole, parts)


def test_states_of_processes_merge_exactly(make: Make, batch: Any) -> None:
    model = make(dtype=torch.float64)
    whole = run(model, batch).table()
    states = []
    for part in micro(batch, 2):
        model.zero_grad()
        with nl.record(model) as recorder:
            (model.loss(*part) / 4).backward()
        states.append(pickle.loads(pickle.dumps(recorder.state())))
    merged = nl.merge(states)
    assert_same_values(
        *(table[table["role"] == ""].reset_index(drop=True).astype({"status": str}) for table in (whole, merged))
    )
    gradients = merged[(merged["role"] != "") & (merged["quantity"] == "grad_norm")]
    assert gradients["value"].isna().all() and set(gradients["status"]) == {
        "gradients of different batches do not merge"
    }
    sizes = merged["quantity"] == "param_rms"
    assert np.array_equal(merged[sizes]["value"], whole[whole["quantity"] == "param_rms"]["value"])


def test_equal_gradients_of_processes_stay(make: Make, batch: Any) -> None:
    state = run(make(), batch).state()
    merged, alone = nl.merge([state, state]), nl.merge([state])
    norms = [frame[frame["quantity"] == "grad_norm"]["value"].to_numpy() for frame in (merged, alone)]
    assert np.array_equal(*norms)
    counts = [frame[frame["quantity"] == "count"]["value"].sum() for frame in (merged, alone)]
    assert counts[0] == 2 * counts[1]


def test_merging_nothing_or_different_things_is_refused(make: Make, batch: Any) -> None:
    with pytest.raises(RecordingError, match="no state to merge"):
        nl.merge([])
    states = [run(make(), batch, sites=sites).state() for sites in (["stream"], ["sum"])]
    with pytest.raises(RecordingError, match="different sites"):
        nl.merge(states)


def test_loss_scale_divides_every_gradient(make: Make, batch: Any) -> None:
    plain = run(make(dtype=torch.float64), batch).table()
    scaled = run(make(dtype=torch.float64), batch, scale=65536.0).table()
    assert_same_values(plain, scaled)


def test_a_mask_is_as_if_the_padding_were_not_there(make: Make, value: Value) -> None:
    tokens = torch.randint(1, 23, (4, 12), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(12) < 5).expand(4, 12)
    model = make(dtype=torch.float64)
    with nl.record(model, mask=mask) as masked, torch.no_grad():
        model(tokens * mask)
    with nl.record(model) as short, torch.no_grad():
        model(tokens[:, :5])
    assert_same_values(short.table(), masked.table())


def test_a_mask_of_another_shape_is_refused(make: Make, batch: Any) -> None:
    with pytest.raises(RecordingError, match=r"the mask \[8, 5\] does not fit \[8, 6\] tokens"):
        run(make(), batch, mask=torch.ones(8, 5, dtype=torch.bool))


def test_only_what_is_asked_for_has_rows(make: Make, batch: Any) -> None:
    full = run(make(), batch).table()
    table = run(make(), batch, sites=["branch", "stream_grad"], quantities=["rms", "l2", "branch_gain"]).table()
    assert set(table["site"]) == {"branch", "stream_grad"} and set(table["quantity"]) == {"rms", "l2", "branch_gain"}
    keys = ["layer", "sublayer", "site", "quantity"]
    both = table.merge(full, on=keys, suffixes=("", "_full"))
    assert len(both) == len(table) and np.array_equal(both["value"], both["value_full"])


def test_gradients_have_the_mask_of_their_own_pass() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3)), torch.ones(1, 2, 3)
    mask = torch.tensor([[True, False]])
    with nl.record(model, mask=mask) as recorder:
        first = model(x).sum()
        mask.copy_(torch.tensor([[True, True]]))
        second = model(x).sum()
        (2 * first).backward()
        second.backward()
    table = recorder.table()
    rows = table[(table["site"] == "output_grad") & (table["name"] == "0")].set_index("quantity")["value"]
    # One token whose gradient has three entries of 2, and two of three entries of 1.
    assert rows["count"] == 3 and rows["l2"] == pytest.approx((3 * 4 + 6) ** 0.5)


def test_two_recorders_at_once(make: Make, batch: Any) -> None:
    model = make()
    alone = run(make(), batch).table()
    with nl.record(model) as one, nl.record(model, sites=["stream"]) as two:
        model.loss(*batch).backward()
    pd.testing.assert_frame_equal(one.table(), alone)
    assert set(two.table()["site"]) == {"stream", ""}


def test_the_same_run_gives_the_same_table(make: Make, batch: Any) -> None:
    pd.testing.assert_frame_equal(run(make(), batch).table(), run(make(), batch).table())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_mask_that_is_not_boolean_is_refused(dtype: torch.dtype, make: Make, batch: Any) -> None:
    mask = torch.ones(8, 6, dtype=dtype)
    with pytest.raises(RecordingError, match="the mask is of torch.*give a bool mask"):
        nl.record(make(), mask=mask)
    recorder = nl.record(make())
    with pytest.raises(RecordingError, match="True for real tokens"):
        recorder.mask = mask
