"""The registry, its errors and the options of its entries."""

from dataclasses import dataclass

import pytest

from normlab.errors import NormlabError, SpecError, UnknownNameError
from normlab.options import check_options, keyword_options
from normlab.registry import Registry
from normlab.vocabulary import QUANTITIES, SITES


@dataclass(frozen=True)
class Thing:
    name: str
    size: int = 0


def test_entries_come_back_by_name_and_in_order() -> None:
    things: Registry[Thing] = Registry("thing")
    entries = [things.register(Thing(name)) for name in ("pre", "post")]
    assert [things[name] for name in things] == entries
    assert len(things) == 2 and "pre" in things and "peri" not in things


def test_unknown_name_suggests_the_nearest() -> None:
    things: Registry[Thing] = Registry("thing")
    things.register(Thing("sandwich"))
    with pytest.raises(UnknownNameError) as error:
        things["sandwhich"]
    assert str(error.value) == "unknown thing 'sandwhich': choose one of sandwich; did you mean 'sandwich'?"


def test_registering_twice() -> None:
    things: Registry[Thing] = Registry("thing")
    things.register(Thing("a"))
    things.register(Thing("a"))
    with pytest.raises(NormlabError, match="registered already"):
        things.register(Thing("a", size=1))
    things.register(Thing("a", size=1), replace=True)
    assert things["a"].size == 1


def test_options_are_the_keyword_only_parameters() -> None:
    def build(width: int, *, eps: float = 1e-5, gain: bool = True) -> None: ...

    assert keyword_options(build, leave_out=("eps",)) == {"gain": True}
    assert keyword_options(3) == {}
    with pytest.raises(SpecError, match="norm 'x' has no option 'gian'.*did you mean 'gain'"):
        check_options("norm 'x'", {"gain": True}, {"gian": True})


def test_a_misspelled_quantity_or_site_is_a_sentence_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown quantity 'token_overlp': .*did you mean 'token_overlap'"):
        QUANTITIES["token_overlp"]
    with pytest.raises(UnknownNameError, match="unknown site 'strem': .*did you mean 'stream'"):
        SITES["strem"]
    assert "strem" not in SITES and SITES.get("strem") is None and list(SITES)[0] == "stream"
