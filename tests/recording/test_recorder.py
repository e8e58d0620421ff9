"""The recorder: steps of a training loop, and what it refuses."""

from typing import Any

import pytest
import torch
from recorded_parts import Make, run
from torch import nn

import normlab as nl
from normlab.errors import NormlabError, RecordingError
from normlab.recording import RecordingWarning


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


def test_a_deep_table_is_quick() -> None:
    import time

    model = nl.build(nl.ModelSpec(depth=64, width=8, heads=2, vocab=16))
    tokens = torch.randint(0, 16, (2, 4))
    recorder = run(model, (tokens, tokens))
    start = time.process_time()
    table = recorder.table()
    assert len(table) > 12_000 and time.process_time() - start < 1.0


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
