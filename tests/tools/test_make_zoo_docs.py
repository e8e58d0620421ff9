import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from normlab.spec.zoo import entries

ROOT = Path(__file__).parents[2]
OURS = [entry for entry in entries()]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_zoo_docs", ROOT / "tools/make_zoo_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_a_function_of_the_registries_and_the_kept_table(docs: ModuleType) -> None:
    # After a change run tools/make_zoo_docs.py, with --measure for a new entry.
    assert docs.PAGE.read_text(encoding="utf-8") == docs.page(OURS, docs.read_kept())


def test_the_kept_table_is_kept_as_it_is_written(docs: ModuleType) -> None:
    assert docs.KEPT.read_text(encoding="utf-8") == docs.kept_text(docs.read_kept())
    assert list(docs.read_kept()) == [(entry.kind, entry.name, depth) for entry in OURS for depth in docs.DEPTHS]


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_what_was_measured_is_measured_again(entry: object, docs: ModuleType) -> None:
    kept = docs.read_kept()
    for depth in (4, 16):
        found = docs.growth(docs.spec_of(entry, depth))
        assert found == pytest.approx(kept[entry.kind, entry.name, depth], rel=0.05)


def test_every_link_leads_to_the_file_that_registers_the_entry(docs: ModuleType) -> None:
    links = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", docs.PAGE.read_text(encoding="utf-8"))
    assert len(links) == len(OURS)
    for name, link in links:
        assert f'name="{name}"' in (docs.PAGE.parent / link).read_text(encoding="utf-8")
