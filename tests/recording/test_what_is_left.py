"""What is left of a recording on a model, on its copies and in memory: nothing."""

import copy
import gc
import weakref
from typing import Any

import pandas as pd
import pytest
import torch
from recorded_parts import Make, heard, run
from torch import nn

import normlab as nl
from normlab.errors import NormlabError
from normlab.recording.ledger import Ledger


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
        assert heard(model) and not heard(twin)
        twin.loss(*batch).backward()
        model.loss(*batch).backward()
    assert set(recorder.table()["value"]) == {batch[0].numel()}


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


def test_hooks_of_passes_that_are_over_are_let_go_within_a_step() -> None:
    class Block(nn.Module):
        """Gives what its last module gives, which both have seen."""

        def __init__(self) -> None:
            super().__init__()
            self.map, self.last = nn.Linear(4, 4), nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.last(x + self.map(x))
            return result

    def awaiting() -> int:
        gc.collect()
        return sum(type(one).__name__ == "Awaiting" for one in gc.get_objects())

    model, x = nn.Sequential(Block(), Block()), torch.randn(2, 3, 4)
    counts = []
    with nl.record(model):
        for _ in range(6):
            model(x).sum().backward()
            counts.append(awaiting())
    assert counts[-1] <= counts[1]
