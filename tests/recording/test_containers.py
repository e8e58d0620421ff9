"""Containers that modules return: all that they hold has rows of its own, and looking into them disturbs nothing."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

import pytest
from recorded_parts import Makes, draw
from torch import Tensor, nn

import normlab as nl
from normlab.recording import Address, Observed, Port, SitePlan
from normlab.recording.tensors import tensors_in


def x() -> Tensor:
    return draw(2, 3, 8)


def sizes(shape: Callable[[Tensor], Any]) -> dict[str, float]:
    """Return the RMS that each row of a module has, as a multiple of that of its input."""
    with nl.record(model := nn.Sequential(Makes(shape))) as recorder:
        model(x())
    rows = recorder.table().query("site == 'output' and quantity == 'rms'")
    own = float(x().double().square().mean().sqrt())
    return {name: round(size / own, 5) for name, size in zip(rows["name"], rows["value"], strict=True)}


class Lazy(Mapping[str, Tensor]):
    """Names more than it can give."""

    def __init__(self, held: dict[str, Tensor]) -> None:
        self._held = held

    def __getitem__(self, key: str) -> Tensor:
        if key == "lazy":
            raise RuntimeError("not computed yet")
        return self._held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["lazy", *self._held])

    def __len__(self) -> int:
        return len(self._held) + 1


class Endless(Lazy):
    """Holds another one of its kind, made when it is asked for."""

    def __getitem__(self, key: str) -> Any:
        return Endless(self._held) if key == "lazy" else self._held[key]


class Recent(OrderedDict[str, Tensor]):
    """Moves what is looked up to its end."""

    def __getitem__(self, key: str) -> Tensor:
        self.move_to_end(key)
        return super().__getitem__(key)


class Refuses:
    """Raises whatever it is asked for that it does not have."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


def around(x: Tensor) -> list[Any]:
    found: list[Any] = [2 * x]
    found.append({"self": found, "more": 3 * x})
    return found


def deep(x: Tensor) -> Any:
    found: Any = 2 * x
    for _ in range(300):
        found = (found,)
    return found


def test_a_container_that_holds_itself_is_walked_once() -> None:
    assert sizes(around) == {"0[0]": 2.0, "0[1.more]": 3.0}


def test_a_container_that_stands_in_two_places_has_rows_in_both() -> None:
    both = [2 * x()]
    assert [path for path, _ in tensors_in((both, {"b": both}))] == [(0, 0), (1, "b", 0)]


def test_what_a_container_cannot_give_is_passed_over() -> None:
    assert sizes(lambda x: Lazy({"x": 2 * x, "y": 3 * x})) == {"0[x]": 2.0, "0[y]": 3.0}
    assert sizes(lambda x: (Refuses(), 2 * x)) == {"0[1]": 2.0}


def test_containers_without_end_and_deep_ones() -> None:
    assert ((), ("x",)) == tuple(path for path, _ in (*tensors_in(x()), *tensors_in(Lazy({"x": x()}))))
    assert 1 < sum(1 for _ in tensors_in(Endless({"x": x()}))) < 1000
    assert [len(path) for path, _ in tensors_in(deep(x()))] == [300]


def test_a_dictionary_that_counts_its_lookups_stays_as_it_was() -> None:
    given = Recent(a=x(), b=2 * x())
    assert [path for path, _ in tensors_in(given)] == [("a",), ("b",)] and list(given) == ["a", "b"]


def test_a_plan_that_names_what_a_container_cannot_give_gets_nothing() -> None:
    plan = SitePlan(observed=(Observed(Address(sublayer="mlp", site="branch"), Port("", path=("lazy",))),))
    with nl.record(model := Makes(lambda x: Lazy({"x": x})), sites=plan) as recorder:
        model(x())
    assert set(recorder.table()["status"]) == {"not there"}


Kind = Enum("Kind", {"A": "a"}, type=str)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (lambda x: {"a": {"b": x}, "a.b": 2 * x}, {"a.b": 1.0, "'a.b'": 2.0}),
        (lambda x: {0: x, "0": 2 * x, -1: 3 * x, "-1": 4 * x}, {"0": 1.0, "'0'": 2.0, "-1": 3.0, "'-1'": 4.0}),
        (lambda x: {True: x, "True": 2 * x}, {"1": 1.0, "True": 2.0}),
        (lambda x: {"a": {"": x}, "": {"a": 2 * x}}, {"a.''": 1.0, "''.a": 2.0}),
        (lambda x: {"'0'": x, "0": 2 * x}, {"\"'0'\"": 1.0, "'0'": 2.0}),
        (lambda x: {"p3/out": x, "layer-1": [2 * x], "x2": 3 * x}, {"p3/out": 1.0, "layer-1.0": 2.0, "x2": 3.0}),
        (lambda x: {Kind.A: x, "Kind.A": 2 * x}, {"a": 1.0, "'Kind.A'": 2.0}),
    ],
)
def test_keys_that_print_alike_have_rows_of_their_own(
    shape: Callable[[Tensor], Any], expected: dict[str, float]
) -> None:
    assert sizes(shape) == {f"0[{key}]": size for key, size in expected.items()}
