"""What a name stands for, as text that means the same in every process."""

import dataclasses

from normlab.norms import NORMS
from normlab.placements import PLACEMENTS
from normlab.spec import ModelSpec
from normlab.sweeps.definitions import definitions, describe

SPEC = ModelSpec(depth=2, width=8, placement=("pre", "post"), norm="rmsnorm")


def test_every_name_of_a_spec_is_described():
    assert set(definitions(SPEC)) == {
        "placement 'pre'",
        "placement 'post'",
        "norm 'rmsnorm'",
        "init 'xavier'",
        "activation 'gelu'",
    }
    assert all(definitions(SPEC).values())


def test_an_entry_that_changed_is_described_otherwise():
    pre = PLACEMENTS["pre"]
    changed = dataclasses.replace(pre, wiring=dataclasses.replace(pre.wiring, skip_scale=0.5))
    assert describe(changed) != describe(pre)
    assert describe(dataclasses.replace(NORMS["rmsnorm"], build=len)) != describe(NORMS["rmsnorm"])


def test_the_order_of_a_set_does_not_matter():
    words = [str(number) for number in range(50)]
    assert describe(frozenset(words)) == describe(frozenset(reversed(words)))
    assert describe({"a": 1, "b": 2.0}) == describe({"b": 2.0, "a": 1}) != describe({"a": 1, "b": 2})


def test_an_unregistered_name_is_empty(monkeypatch):
    monkeypatch.delitem(NORMS._entries, "rmsnorm")
    assert definitions(SPEC)["norm 'rmsnorm'"] == ""
