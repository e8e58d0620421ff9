import dataclasses
import json

import pytest

from normlab import claims
from normlab.digits import minus
from normlab.errors import NormlabError

FIELDS = (
    "id claim_version statement source nature verdict reason expected right_statement regimes rule_hash alpha p_holm "
    "seeds_to_decide rows coverage_gaps plot versions"
).split()
REGIME_FIELDS = (
    "name spec verdict effect unit low high level estimator margin rule n_seeds depths widths data finite_size theory"
).split()


@pytest.fixture(scope="module")
def verdict(simulated):
    return claims.judge("preln-grad-shrinks-with-depth", simulated.sweep())


def test_json_has_the_agreed_fields_and_only_finite_numbers(verdict):
    found = verdict.to_json()
    assert list(found) == FIELDS
    assert [list(regime) for regime in found["regimes"]] == [REGIME_FIELDS] * 2
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["regimes"][1]["effect"] is None


def test_citation_has_the_numbers_the_domain_and_the_hash(verdict):
    text, regime = verdict.cite(), verdict.regimes[0]
    numbers = (minus(f"{regime.effect:.3g}"), "98% interval", "8 seeds")
    domain = ("depths 4, 8, 16, 32, 64", "width 128", "4 × 64 tokens", "final norm off: not tested")
    for part in (*numbers, *domain, verdict.rows["hash"][:12], verdict.rule_hash):
        assert part in text


def test_representations(verdict):
    assert repr(verdict) == "<Verdict preln-grad-shrinks-with-depth: supported>"
    html = verdict._repr_html_()
    assert html.count("<tr>") == 3
    assert "1/√L" in html


def test_a_rule_hash_changes_with_the_rule_and_nothing_else():
    claim = claims.CLAIMS["preln-variance-linear-in-depth"]
    regime = claim.regimes[0]
    wider = dataclasses.replace(regime, rule=claims.ZeroWithin(margin=0.2))
    assert dataclasses.replace(claim, regimes=(wider, *claim.regimes[1:])).rule_hash != claim.rule_hash
    assert dataclasses.replace(claim, version=2).rule_hash != claim.rule_hash
    assert dataclasses.replace(claim, plot="input_scale").rule_hash == claim.rule_hash


def test_a_claim_of_your_own_is_judged_by_its_name(simulated, monkeypatch):
    monkeypatch.setattr(claims.CLAIMS, "_entries", dict(claims.CLAIMS.items()))
    known = claims.CLAIMS["preln-grad-shrinks-with-depth"]
    mine = dataclasses.replace(known, id="mine", regimes=known.regimes[:1])
    assert claims.register_claim(mine) is mine
    assert claims.judge("mine", simulated.sweep()).verdict == "supported"
    with pytest.raises(NormlabError, match="registered already"):
        claims.register_claim(dataclasses.replace(mine, version=2))
