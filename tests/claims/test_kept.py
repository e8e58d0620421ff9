"""The kept table of a full run: the verdicts of the catalogue again, and worlds in which they flip."""

from pathlib import Path

import pytest
from flips import FLIPS
from planted_worlds import WORLDS

from normlab import claims
from normlab.fits import choose
from normlab.table import read_csv

DOCS = Path(__file__).parents[2] / "docs"
TESTED = [name for name, claim in claims.CLAIMS.items() if not claim.not_tested]


@pytest.fixture(scope="module")
def kept():
    return read_csv(DOCS / "claims.csv.gz")


@pytest.fixture(scope="module")
def verdicts(kept):
    return {verdict.id: verdict for verdict in claims.judge_all(kept, untested=True, own=True)}


def test_the_page_is_what_the_kept_rows_say(verdicts):
    assert (DOCS / "claims.md").read_text(encoding="utf-8") == claims.scoreboard(tuple(verdicts.values()))


def test_the_kept_table_is_small():
    assert (DOCS / "claims.csv.gz").stat().st_size < 2_000_000


def test_verdicts_are_those_that_the_catalogue_expects(verdicts):
    other = {name: found.verdict for name, found in verdicts.items() if found.verdict != found.expected}
    assert other == {}


def test_every_claim_was_tested(verdicts):
    assert [name for name in TESTED if verdicts[name].verdict == "not-tested"] == []


def test_every_claim_has_a_planted_world():
    assert [name for name in TESTED if name not in FLIPS] == []
    assert set(FLIPS.values()) <= set(WORLDS)


@pytest.mark.parametrize("name", FLIPS)
def test_a_claim_notices_a_world_that_is_not_ours(kept, verdicts, name):
    rows = choose(kept, str(verdicts[name].rows["query"]))
    assert claims.judge(name, rows).verdict == verdicts[name].verdict
    assert claims.judge(name, WORLDS[FLIPS[name]](rows)).verdict != verdicts[name].verdict
