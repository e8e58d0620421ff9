import json
from pathlib import Path

from click.testing import CliRunner, Result

import normlab
from normlab.cli import main
from normlab.digits import minus


def claims(*words: str) -> Result:
    return CliRunner().invoke(main, ["claims", *words], prog_name="normlab", catch_exceptions=False)


def test_list_is_the_catalogue() -> None:
    found = json.loads(claims("list", "--json").stdout)["claims"]
    assert [claim["id"] for claim in found] == list(normlab.claims.catalog()["id"])
    assert all(claim["id"] in claims("list").stdout for claim in found)


def test_judge_says_what_the_library_says(run: Path, tmp_path: Path) -> None:
    id = "postln-output-grad-large"
    (found,) = json.loads(claims("judge", id, str(run), "--json", "--out", str(tmp_path / "v.json")).stdout)["claims"]
    expected = normlab.claims.judge(id, normlab.load(run))
    assert found == json.loads(json.dumps(expected.to_json()))
    assert json.loads((tmp_path / "v.json").read_text()) == {"claims": [found]}
    assert expected.statement in claims("judge", id, str(run)).stdout


def test_an_unknown_claim_is_a_usage_error(run: Path) -> None:
    result = claims("judge", "postln-output-grad-larg", str(run))
    assert result.exit_code == 2 and "did you mean 'postln-output-grad-large'" in result.stderr


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    result = claims("judge", "postln-output-grad-large", str(tmp_path))
    assert result.exit_code == 1 and str(tmp_path) in result.stderr


def test_strict_fails_where_another_verdict_was_expected(run: Path) -> None:
    # Three seeds of tiny models decide nothing.
    verdict = normlab.claims.judge("preln-grad-shrinks-with-depth", normlab.load(run))
    assert verdict.verdict != verdict.expected
    assert claims("judge", verdict.id, str(run), "--strict").exit_code == 1
    assert claims("judge", verdict.id, str(run)).exit_code == 0


def test_list_shows_a_family() -> None:
    found = json.loads(claims("list", "--family", "one step", "--json").stdout)["claims"]
    assert {claim["family"] for claim in found} == {"one step"}
    result = claims("list", "--family", "nothing")
    assert result.exit_code == 2 and "one step" in result.stderr


def test_show_says_how_a_claim_is_decided() -> None:
    claim = normlab.claims.CLAIMS["preln-grad-shrinks-with-depth"]
    text = claims("show", claim.id).stdout
    for part in (claim.statement, claim.regimes[0].rule.text, claim.refuted_by, claim.right_statement):
        assert minus(part) in text
    assert json.loads(claims("show", claim.id, "--json").stdout)["claims"][0]["rule_hash"] == claim.rule_hash
    assert claims("show", "batchnorm-14x").stdout.strip().endswith("Not tested: training")
    assert "Needs: gpu" in claims("show", "rms-faster-on-gpu").stdout
    told = normlab.claims.CLAIMS["rank-collapse"].history
    assert told and told in claims("show", "rank-collapse").stdout


def test_run_judges_what_it_ran_and_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    ids = ("rms-not-shift-invariant", "postln-definition", "batchnorm-14x")
    words = ("run", *ids, "--seeds", "2", "--jobs", "1", "--out", str(tmp_path), "--json", "--strict")
    result = claims(*words)
    found = json.loads(result.stdout)["claims"]
    assert result.exit_code == 0
    assert {claim["id"]: claim["verdict"] for claim in found} == dict(
        zip(ids, ("supported", "refuted", "not-tested"), strict=True)
    )
    assert found[2]["reason"] == "training"
    assert json.loads((tmp_path / "verdicts.json").read_text()) == {"claims": found}
    assert "postln-definition" in (tmp_path / "verdicts.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "correction-postln-definition" in page and str(tmp_path / "report.html") in result.stderr
    assert json.loads(claims(*words).stdout)["claims"] == found
    (again,) = json.loads(claims("judge", ids[0], str(tmp_path), "--json").stdout)["claims"]
    assert again["verdict"] == "supported"


def test_run_takes_ids_or_all() -> None:
    assert claims("run", "postln-definition", "--all").exit_code == 2
    assert claims("run", "postln-defin").exit_code == 2


def test_run_strict_fails_where_another_verdict_was_expected(tmp_path: Path) -> None:
    # One seed decides no slope.
    words = ("run", "batchnorm-batch-32", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path))
    assert claims(*words).exit_code == 0
    result = claims(*words, "--strict")
    assert result.exit_code == 1 and "batchnorm-batch-32 is inconclusive, not refuted" in result.stderr


def test_an_unknown_claim_suggests_what_begins_or_contains_it() -> None:
    said = claims("show", "preln-grad").stderr
    assert "'preln-grad-shrinks-with-depth' or 'preln-grad-flat-within-model'" in said and "claims list" in said
    assert "'rank-collapse'" in claims("show", "collapse").stderr
    assert "ln-worked-example" not in said and len(said) < 500


def test_list_is_one_line_a_claim_where_there_is_no_terminal() -> None:
    lines = claims("list").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == list(normlab.claims.CLAIMS)


def test_run_says_at_the_start_how_long_it_takes() -> None:
    from normlab.claims import plan
    from normlab.cli.claims_run import _time

    few, all_quick, full = plan(["ln-shift-invariant"], quick=True), plan(quick=True), plan()
    assert _time(few, 1) == "this takes about 1 min with 1 worker"
    quick, slow, shared = (int(_time(one, jobs).split()[3]) for one, jobs in ((all_quick, 1), (full, 1), (full, 4)))
    assert 3 < quick < slow and slow / 4 <= shared <= slow / 4 + 1
