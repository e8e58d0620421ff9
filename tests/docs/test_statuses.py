"""docs/recording.md lists the statuses that recordings leave: all of them, and no other."""

import importlib.util
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest

import normlab.recording
from normlab.recording.native import NAME

pytestmark = pytest.mark.filterwarnings("ignore::normlab.RecordingWarning", "ignore:Sparse:UserWarning")


@pytest.fixture(scope="module")
def found() -> set[str]:
    spec = importlib.util.spec_from_file_location("statuses", Path(__file__).with_name("statuses.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return set().union(*module.everything())


@pytest.fixture(scope="module")
def listed(pages: ModuleType) -> list[str]:
    return list(dict.fromkeys(pages.first_column(pages.read("docs/recording.md"), "What a status says")))


def test_every_status_that_is_listed_occurs(found: set[str], listed: list[str], pages: ModuleType) -> None:
    assert len(listed) > 40
    assert not [one for one in listed if not any(pages.pattern(one).fullmatch(status) for status in found)]


def test_every_status_that_occurs_is_listed(found: set[str], listed: list[str], pages: ModuleType) -> None:
    assert not [status for status in found if not any(pages.pattern(one).fullmatch(status) for one in listed)]


def test_every_reason_that_has_a_name_in_the_code_is_listed(listed: list[str]) -> None:
    modules = [
        import_module(found.name)
        for found in walk_packages(normlab.recording.__path__, "normlab.recording.")
        if not found.name.endswith("_native")
    ]
    named = [item for module in modules for item in vars(module).items()]
    reasons = {value for name, value in named if name.isupper() and name[0] != "_" and isinstance(value, str)}
    assert len(reasons) > 8 and not reasons - {*listed, NAME}
