"""Few draws with wide bounds; docs/statistics.md has many."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_statistics", ROOT / "tools" / "check_statistics.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_statistics"] = module  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    return module


def test_intervals_cover_the_truth(tool: ModuleType) -> None:
    assert [row for row in tool.coverage(400, slack=0.025) if not row.right] == []


def test_false_verdicts_are_rare_on_every_edge(tool: ModuleType) -> None:
    # Five standard errors of a rate of one in a hundred.
    assert [row for row in tool.false_verdicts(400, factor=3.5) if not row.right] == []


def test_the_vote_finds_the_law_that_made_a_stream(tool: ModuleType) -> None:
    assert [row for row in tool.right_laws(60, least=0.9) if not row.right] == []


def test_the_kept_page_has_every_check_and_none_that_failed(tool: ModuleType) -> None:
    lines = re.findall(
        r"^\| (.+) \| (\d+) \| (\d+) \| ([0-9.]+) \| ([0-9.e-]+) to ([0-9.e-]+) \|$",
        tool.PAGE.read_text(encoding="utf-8"), re.MULTILINE,
    )  # fmt: skip
    wanted = [*tool.coverage(3), *tool.false_verdicts(3), *tool.right_laws(3)]
    assert [(what, int(seeds)) for what, seeds, *_ in lines] == [(row.what, row.seeds) for row in wanted]
    assert [(low, high) for *_, low, high in lines] == [(f"{row.low:g}", f"{row.high:g}") for row in wanted]
    assert all(float(low) <= float(found) <= float(high) for *_, found, low, high in lines)
    least = {"95 %": 5000, "law ": 1000}
    assert all(int(draws) >= least.get(what[:4], 10_000) for what, _, draws, *_ in lines)


def test_simulated_noise_is_that_of_measured_streams(tool: ModuleType) -> None:
    drawn, *measured = tool.spreads()
    assert all(0.4 < found / drawn < 2.5 for found in measured)
