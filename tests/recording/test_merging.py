"""What may be merged, and what is said of the rest."""

from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch
from torch import nn

import normlab as nl
from normlab.errors import RecordingError


@pytest.fixture(scope="module")
def recorder() -> Any:
    with nl.record(model := nn.Linear(4, 4)) as recorder:
        model(torch.ones(2, 3, 4))
    return recorder


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda recorder: recorder, "what was given is a Recorder"),
        (lambda recorder: recorder.state(), "what was given is a State"),
        (lambda recorder: recorder.table(), "what was given is a DataFrame"),
        (lambda recorder: {0: recorder.state()}, "what was given is a dict"),
        (lambda recorder: "states.pickle", "what was given is a str"),
        (lambda recorder: None, "what was given is None"),
        (lambda recorder: [recorder.state(), recorder], "item 1 is a Recorder"),
        (lambda recorder: [recorder.table()], "item 0 is a DataFrame"),
        (lambda recorder: [[recorder.state()]], "item 0 is a list"),
        (lambda recorder: [1, 2], "item 0 is 1"),
    ],
)
def test_what_is_no_list_of_states_is_refused(
    given: Callable[[Any], Any], said: str, recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(RecordingError) as refused:
        nl.merge(given(recorder))
    assert str(refused.value) == (
        f"merge takes a list of states, and {said}: give it those that Recorder.state() returned, "
        "as in merge([one.state(), two.state()])"
    )


def test_states_may_come_one_by_one(recorder: Any) -> None:
    merged = nl.merge(recorder.state() for _ in range(3))
    assert set(merged.query("site == 'output' and quantity == 'count'")["value"]) == {18}
