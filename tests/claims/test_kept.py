"""The kept table of a full run: the verdicts of the catalogue again, and worlds in which they flip."""

import json
from pathlib import Path

import pytest
from flips import FLIPS
from planted_worlds import WORLDS

from normlab import claims
from normlab.digits import minus
from normlab.fits import choose
from normlab.table import read_csv

DOCS = Path(__file__).parents[2] / "docs"
TESTED = [name for name, claim in claims.CLAIMS.items() if not claim.not_tested and not claim.needs]

#: Verdicts that are not the expected ones, and why.
DIFFERENT = {
    "perturbation-amplification": "Post-LN's gains are log-normal with a variance of the order of L/d: at these widths "
    "16 seeds do not tell a line in L from one in ln L",
}


@pytest.fixture(scope="module")
def kept():
    return read_csv(DOCS / "claims.csv.gz")


@pytest.fixture(scope="module")
def made():
    return json.loads((DOCS / "claims.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def verdicts(kept):
    return {verdict.id: verdict for verdict in claims.judge_all(kept, untested=True, own=True)}


def test_the_page_is_what_the_kept_rows_say(verdicts, made):
    page = claims.scoreboard(tuple(verdicts.values()), seeds=made["seeds"], versions=made["versions"])
    assert (DOCS / "claims.md").read_text(encoding="utf-8") == page


def test_the_page_names_seeds_versions_and_rules(verdicts, made):
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert f"weights' seeds {made['seeds'][0]} to {made['seeds'][-1]}" in page
    assert all(f"{name} {version}" in page for name, version in made["versions"].items())
    for name in TESTED:
        assert f"rule `{verdicts[name].rule_hash}`" in page
    holm = verdicts["lyapunov-half-zeta"].p_holm
    assert minus(f"| **conditional** | 1 | {holm:.1g} |") in page


def test_seeds_are_not_those_on_which_rules_were_chosen(kept, made):
    assert len(made["seeds"]) == 16 and min(made["seeds"]) >= 1000
    assert set(kept["model_seed"].unique()) == set(made["seeds"])


def test_the_kept_table_is_small():
    assert (DOCS / "claims.csv.gz").stat().st_size < 2_000_000


def test_verdicts_are_those_that_the_catalogue_expects_but_for_those_that_are_explained(verdicts):
    other = {name for name, found in verdicts.items() if found.verdict != found.expected}
    assert other == set(DIFFERENT)


def test_every_claim_was_tested(verdicts):
    assert [name for name in TESTED if verdicts[name].verdict == "not-tested"] == []


def test_laws_of_models_are_checked_at_two_widths(verdicts):
    """Laws of swept models, and of computed ones where the width is not what is varied."""
    varied = {"grad-width-exponent", "nonzero-mean-updates-grow-faster", "softmax-saturation-kills-gradient",
              "batchnorm-batch-32"}  # fmt: skip
    lawful = [name for name in TESTED if claims.CLAIMS[name].nature in ("law", "trend") and name not in varied]
    single = [name for name in lawful if not any(regime.finite_size for regime in verdicts[name].regimes)]
    assert single == []


def test_every_claim_has_a_planted_world():
    assert [name for name in TESTED if name not in FLIPS] == []
    assert set(FLIPS.values()) <= set(WORLDS)


@pytest.mark.parametrize("name", FLIPS)
def test_a_claim_notices_a_world_that_is_not_ours(kept, verdicts, name):
    rows = choose(kept, str(verdicts[name].rows["query"]))
    assert claims.judge(name, rows).verdict == verdicts[name].verdict
    assert claims.judge(name, WORLDS[FLIPS[name]](rows)).verdict != verdicts[name].verdict
