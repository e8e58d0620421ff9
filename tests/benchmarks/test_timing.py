import time

import torch

from normlab.benchmarks import copy_bandwidth, fixed_threads, interleaved


def test_every_function_runs_once_a_round_in_changing_order() -> None:
    order: list[str] = []
    functions = {name: (lambda name=name: order.append(name)) for name in "abc"}
    found = interleaved(functions, rounds=20, warm_up=2, shortest=0)
    counted = order[-22 * 3 :]
    turns = [counted[start : start + 3] for start in range(0, len(counted), 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 3
    assert {name: len(times) for name, times in found.items()} == {"a": 20, "b": 20, "c": 20}


def test_a_sample_of_a_short_function_is_the_mean_of_many_calls() -> None:
    calls: list[int] = []
    (times,) = interleaved({"short": lambda: calls.append(1)}, rounds=3, warm_up=0, shortest=1e-3).values()
    assert len(calls) > 100 and times.max() < 1e-3


def test_times_are_those_of_the_clock() -> None:
    found = interleaved({"sleeps": lambda: time.sleep(0.002), "not": lambda: None}, rounds=3, warm_up=0, shortest=0)
    assert found["sleeps"].min() >= 0.002 > found["not"].min()


def test_a_device_is_waited_for_before_and_after_each_sample() -> None:
    events: list[str] = []
    interleaved({"f": lambda: events.append("f")}, rounds=2, warm_up=0, shortest=0,
                synchronise=lambda: events.append("wait"))  # fmt: skip
    assert events[-6:] == ["wait", "f", "wait"] * 2


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with fixed_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_copying_has_a_speed() -> None:
    assert 1e8 < copy_bandwidth(1.0, rounds=3) < 1e13
