"""The recorder: steps, micro-batches, masks, states, and what it refuses."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import normlab as nl
from normlab.errors import NormlabError, RecordingError
from normlab.recording import RecordingWarning
from normlab.recording.ledger import Ledger

Make = Callable[..., nn.Module]
Value = Callable[..., float]


def run(model: nn.Module, *batches: Any, scale: float = 1.0, **options: Any) -> Any:
    with nl.record(model, loss_scale=scale, **options) as recorder:
        for batch in batches:
            (model.loss(*batch) * (scale / len(batches))).backward()
    return recorder


def micro(batch: Any, size: int) -> list[Any]:
    return list(zip(*(part.split(size) for part in batch), strict=True))


def assert_same_values(one: pd.DataFrame, two: pd.DataFrame, rtol: float = 1e-12) -> None:
    pd.testing.assert_frame_equal(one.drop(columns="value"), two.drop(columns="value"))
    np.testing.assert_allclose(one["value"], two["value"], rtol=rtol, atol=1e-13)


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


def test_a_gradient_that_is_there_already_is_refused(make: Make, batch: Any) -> None:
    model = make()
    model.loss(*batch).backward()
    with pytest.raises(RecordingError, match="has a gradient already.*zero_grad"), nl.record(model):
        pass
    model.zero_grad(set_to_none=False)
    run(model, batch)


def test_a_training_loop(make: Make, batch: Any) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nl.record(model, every=2) as recorder:
        for _ in range(5):
            model.loss(*batch).backward()
            recorder.step()
            optimizer.step()
            optimizer.zero_grad()
    table = recorder.table()
    assert sorted(table["step"].unique()) == [0, 2, 4]
    losses = table[table["quantity"] == "loss"]["value"].to_numpy()
    assert losses[0] > losses[1] > losses[2]
    assert table.groupby("step").size().nunique() == 1


def test_a_loop_that_forgets_to_clear_gradients_is_refused(make: Make, batch: Any) -> None:
    model = make()
    with pytest.raises(RecordingError, match="has a gradient already"), nl.record(model) as recorder:
        for _ in range(2):
            model.loss(*batch).backward()
            recorder.step()


def test_step_outside_of_the_block_is_refused(make: Make) -> None:
    with pytest.raises(RecordingError, match="call it there"):
        nl.record(make()).step()


def test_a_recorder_is_used_once(make: Make, batch: Any) -> None:
    recorder = run(make(), batch)
    with pytest.raises(RecordingError, match="recorded already"), recorder:
        pass


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


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sites": ["streem"]}, "unknown site 'streem'.*did you mean 'stream'"),
        ({"quantities": ["kurtosys"]}, "unknown quantity 'kurtosys'.*did you mean 'kurtosis'"),
        ({"quantities": ["apjn"]}, "unknown quantity 'apjn'"),
        ({"loss_scale": 0.0}, "loss_scale is 0.0"),
        ({"every": 0}, "every is 0"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str, make: Make) -> None:
    with pytest.raises(NormlabError, match=message):
        nl.record(make(), **options)


def test_only_what_is_asked_for_has_rows(make: Make, batch: Any) -> None:
    full = run(make(), batch).table()
    table = run(make(), batch, sites=["branch", "stream_grad"], quantities=["rms", "l2", "branch_gain"]).table()
    assert set(table["site"]) == {"branch", "stream_grad"} and set(table["quantity"]) == {"rms", "l2", "branch_gain"}
    keys = ["layer", "sublayer", "site", "quantity"]
    both = table.merge(full, on=keys, suffixes=("", "_full"))
    assert len(both) == len(table) and np.array_equal(both["value"], both["value_full"])


def test_hooks_are_gone_after_an_exception(make: Make, batch: Any) -> None:
    model = make()
    before = everything_of(model)
    with pytest.raises(NormlabError, match="tokens run from"), nl.record(model):
        assert everything_of(model) != before
        model(batch[0] + 1000)
    assert everything_of(model) == before


def everything_of(model: nn.Module) -> list[dict[str, Any]]:
    """What torch keeps for every module, and for each of the model's."""
    from torch.nn.modules import module

    everywhere = {
        name: len(kept) for name, kept in vars(module).items() if name.startswith("_global_") and "hooks" in name
    }
    return [everywhere, *({key: repr(value) for key, value in vars(one).items()} for one in model.modules())]


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


def test_a_gradient_after_the_block_is_not_recorded(make: Make, batch: Any) -> None:
    model = make()
    with nl.record(model) as recorder:
        loss = model.loss(*batch)
    before = recorder.table()
    loss.backward()
    pd.testing.assert_frame_equal(before, recorder.table())


def test_a_deep_copy_carries_no_hook(make: Make, batch: Any) -> None:
    model = make()
    with nl.record(model, sites=["stream"], quantities=["count"]) as recorder:
        twin = copy.deepcopy(model)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in twin.modules())
        twin.loss(*batch).backward()
        model.loss(*batch).backward()
    assert set(recorder.table()["value"]) == {batch[0].numel()}


def test_two_recorders_at_once(make: Make, batch: Any) -> None:
    model = make()
    alone = run(make(), batch).table()
    with nl.record(model) as one, nl.record(model, sites=["stream"]) as two:
        model.loss(*batch).backward()
    pd.testing.assert_frame_equal(one.table(), alone)
    assert set(two.table()["site"]) == {"stream", ""}


def test_the_same_run_gives_the_same_table(make: Make, batch: Any) -> None:
    pd.testing.assert_frame_equal(run(make(), batch).table(), run(make(), batch).table())


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


def test_a_deep_table_is_quick() -> None:
    import time

    model = nl.build(nl.ModelSpec(depth=64, width=8, heads=2, vocab=16))
    tokens = torch.randint(0, 16, (2, 4))
    recorder = run(model, (tokens, tokens))
    start = time.process_time()
    table = recorder.table()
    assert len(table) > 12_000 and time.process_time() - start < 1.0


def test_pairs_say_that_tokens_were_left_out(make: Make, batch: Any) -> None:
    model = make(attention="none")
    with torch.no_grad():
        model.stacks["decoder"].embedding.token[5] = float("inf")
    with nl.record(model) as recorder, torch.no_grad():
        model(batch[0])
    table = recorder.table()
    pairs = table[table["quantity"].isin(["update_ratio", "alignment", "covariance", "lost_share"])]
    assert len(pairs) == 8 and pairs["value"].notna().all() and set(pairs["status"]) == {"nonfinite"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_mask_that_is_not_boolean_is_refused(dtype: torch.dtype, make: Make, batch: Any) -> None:
    mask = torch.ones(8, 6, dtype=dtype)
    with pytest.raises(RecordingError, match="the mask is of torch.*give a bool mask"):
        nl.record(make(), mask=mask)
    recorder = nl.record(make())
    with pytest.raises(RecordingError, match="True for real tokens"):
        recorder.mask = mask


def test_a_loop_that_forgets_to_step_is_refused(make: Make, batch: Any) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RecordingError, match=r"changed between two forward passes.*call recorder.step\(\)"):
        with nl.record(model):
            for _ in range(2):
                optimizer.zero_grad()
                model.loss(*batch).backward()
                optimizer.step()


def test_a_model_that_changes_its_own_parameters_is_no_loop() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, max_norm=0.1), nn.Linear(3, 3))
    with nl.record(model) as recorder:
        for token in range(2):
            model(torch.tensor([[token, 4]])).sum().backward()
    assert set(recorder.table().query("quantity == 'count'")["value"]) == {4}


def test_a_block_in_which_nothing_ran_is_warned_of(make: Make, batch: Any) -> None:
    with pytest.warns(RecordingWarning, match="nothing of the model ran inside the with block") as caught:
        with nl.record(make()):
            make().loss(*batch)
    assert len(caught) == 1


def test_a_step_after_gradients_were_cleared_is_warned_of_once(make: Make, batch: Any) -> None:
    model = make()
    with pytest.warns(RecordingWarning, match="call it after the backward pass and before zero_grad") as caught:
        with nl.record(model) as recorder:
            for _ in range(2):
                model.loss(*batch).backward()
                model.zero_grad()
                recorder.step()
    assert len(caught) == 1
    with nl.record(model) as recorder, torch.no_grad():
        model.loss(*batch)
        recorder.step()


def test_a_recorder_and_its_model_are_gone_with_their_last_names(make: Make, batch: Any) -> None:
    model = make()
    recorder = run(model, batch)
    gone = weakref.ref(model), weakref.ref(recorder)
    gc.disable()
    try:
        del model, recorder
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_an_interrupt_while_steps_are_added_up_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with nl.record(model) as recorder, nl.record(model) as other:
        for _ in range(2):
            model.zero_grad()
            model(torch.ones(2, 3, 4)).sum().backward()
            recorder.step()
            other.step()
    add, left = Ledger.add, [3]

    def interrupted(ledger: Ledger, entry: Any, sums: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        add(ledger, entry, sums)

    monkeypatch.setattr(Ledger, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorder.table()
    pd.testing.assert_frame_equal(recorder.table(), other.table())


def test_what_went_wrong_in_the_block_is_not_hidden_by_what_is_missing_after_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ValueError, match="mine"), nl.record(model) as recorder:
        model(torch.ones(2, 3, 4))
        del model[0]
        raise ValueError("mine")
    assert recorder._observer.ledger is None
