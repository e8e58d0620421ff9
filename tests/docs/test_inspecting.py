"""docs/inspecting.md names every finding with its threshold, and every key of the JSON."""

from types import ModuleType

import pytest

import normlab as nl
from normlab.inspection import Comparison, Inspection
from normlab.inspection.blocks import IDLE
from normlab.inspection.comparing import ROUNDINGS, SHARE
from normlab.inspection.gradients import CHANGES
from normlab.inspection.growth import FLAT, GROWS
from normlab.inspection.logits import LARGE_LOGIT
from normlab.inspection.massive import STEP
from normlab.inspection.precision import FEW_DOUBLINGS, LOST
from normlab.inspection.tokens import MASSIVE


@pytest.fixture(scope="module")
def text(pages: ModuleType) -> str:
    return str(pages.read("docs/inspecting.md"))


@pytest.fixture(scope="module")
def found() -> tuple[Inspection, Comparison]:
    spec = nl.ModelSpec(depth=2, width=8, heads=2)
    return nl.inspect(spec, batch=2, tokens=8), nl.compare(spec, spec, batch=2, tokens=8)


def test_every_finding_is_explained(text: str, found: tuple[Inspection, Comparison]) -> None:
    for finding in found[0].findings:
        assert f"\n| {finding.topic} | " in text


@pytest.mark.parametrize(
    ("topic", "numbers"),
    [
        ("growth of the stream", [f"{FLAT:g}", f"{GROWS:g}-fold"]),
        ("massive activations", [f"{MASSIVE:g} times", f"{100 * STEP:g} %"]),
        ("idle blocks", [f"below {IDLE:g}"]),
        ("gradients", [f"{CHANGES:g}-fold"]),
        ("attention logits", [f"±{LARGE_LOGIT:g}"]),
        ("range of fp16", [f"fewer than {FEW_DOUBLINGS:g} doublings"]),
        ("rounding of bf16", [f"more than {100 * LOST:g} %"]),
    ],
)
def test_its_numbers_are_those_of_the_code(topic: str, numbers: list[str], text: str) -> None:
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {topic} | ")]
    assert not [number for number in numbers if number not in row]


def test_the_tolerances_are_those_of_the_code(text: str) -> None:
    assert f"{ROUNDINGS} roundings of the coarser dtype" in text and f"more than {100 * SHARE:g} %" in text


def test_every_key_of_the_json_is_explained(text: str, found: tuple[Inspection, Comparison]) -> None:
    keys = {*found[0].to_dict(), *found[1].to_dict(), *found[0].findings[0].to_dict()}
    assert not [key for key in keys if f"`{key}`" not in text]
