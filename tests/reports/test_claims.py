import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from normlab import claims
from normlab.claims import CLAIMS, Verdict
from normlab.reports import claims_report, report
from normlab.reports._claims import computed, families
from normlab.reports._claims_page import claims_page


@pytest.fixture(scope="module")
def shown(claims_file: Path, outline: Callable[[Path], Any]) -> Any:
    return outline(claims_file)


def test_every_claim_stands_in_the_summary_and_in_the_details(shown: Any, some_verdicts: tuple[Verdict, ...]) -> None:
    links = [link for link in shown.links if link.startswith("#claim-")]
    for verdict in some_verdicts:
        assert f"claim-{verdict.id}" in shown.ids and f"#claim-{verdict.id}" in links
        assert verdict.statement in shown.within("a") or "_" in verdict.statement
    order = [link.removeprefix("#claim-") for link in links[: len(some_verdicts)]]
    assert order == [view.claim.id for family in families(some_verdicts) for view in family.claims]


def test_numbers_are_those_of_the_verdicts(shown: Any, some_verdicts: tuple[Verdict, ...]) -> None:
    (verdict,) = (one for one in some_verdicts if one.id == "preln-grad-shrinks-with-depth")
    said = shown.within("span")
    for regime in verdict.regimes:
        numbers = [float(text.replace("−", "-")) for text in said if re.fullmatch(r"−?[0-9.]+", text)]
        assert min(abs(number - regime.effect) for number in numbers) < 0.1 * (regime.high - regime.low)
        assert regime.finite_size is not None
        assert any(regime.finite_size.words in text for text in shown.within("p"))


def test_regimes_stand_side_by_side_and_all_of_them(shown: Any, some_verdicts: tuple[Verdict, ...]) -> None:
    beside = [attrs for tag, attrs in shown.elements if tag == "ul" and attrs.get("class") == "beside"]
    tested = [verdict for verdict in some_verdicts if verdict.verdict != "not-tested"]
    assert len(beside) == len(tested)
    names = [regime.name for verdict in tested for regime in verdict.regimes]
    assert all(name in " ".join(text for _, text in shown.texts) for name in names if "√" not in name)


def test_what_is_wrong_has_a_correction_with_a_sentence_to_cite(shown: Any, some_verdicts: tuple[Verdict, ...]) -> None:
    wrong = [verdict for verdict in some_verdicts if verdict.corrects]
    assert len(wrong) >= 3
    assert [id for id in shown.ids if id.startswith("correction-")] == [f"correction-{one.id}" for one in wrong]
    assert shown.within("q") == [one.cite() for one in wrong]


def test_reasons_for_no_verdict_are_the_bare_words(shown: Any) -> None:
    assert {"gpu", "training"} <= set(shown.within("td"))


def test_computed_numbers_are_aggregated_over_seeds(kept: pd.DataFrame, some_verdicts: tuple[Verdict, ...]) -> None:
    (walk,) = (found for found in computed(kept, some_verdicts) if found.name == "depth-12-to-80-grows-2.6x")
    rows = kept[kept["name"] == "walk-ratio-without-start"]["value"]
    numbers = {name: values for name, _, *values in walk.numbers}
    assert walk.seeds == 4 and walk.words.startswith("Compare 80 with 12 independent unit updates")
    assert numbers["walk-ratio-without-start"] == pytest.approx([rows.mean(), rows.min(), rows.max()])


def test_the_embedded_verdicts_are_the_json_of_the_run(shown: Any, some_verdicts: tuple[Verdict, ...]) -> None:
    link = next(link for link in shown.links if link.startswith("data:application/json"))
    found = json.loads(base64.b64decode(link.split(",", 1)[1]))
    assert found == json.loads(json.dumps({"claims": [verdict.to_json() for verdict in some_verdicts]}))


def test_the_page_is_whole_and_fetches_nothing(claims_file: Path, shown: Any) -> None:
    inner = {link[1:] for link in shown.links if link.startswith("#")}
    assert inner <= set(shown.ids) and len(shown.ids) == len(set(shown.ids))
    assert all(link.startswith(("#", "data:")) for link in shown.links)
    assert "script" not in {tag for tag, _ in shown.elements} and shown.open == []
    assert all(after <= before + 1 for before, after in zip(shown.headings, shown.headings[1:], strict=False))


def test_a_folder_of_claims_gets_this_report_and_the_same_bytes(tmp_path: Path) -> None:
    ids = ["rms-keeps-signs", "postln-definition"]
    table = claims.run(ids, seeds=range(2), out=tmp_path, jobs=1)
    verdicts = claims.judge_all(table, ids, untested=True, own=True)
    content = {"claims": [verdict.to_json() for verdict in verdicts]}
    (tmp_path / "verdicts.json").write_text(json.dumps(content), encoding="utf-8")
    first = report(tmp_path, tmp_path / "a.html").read_bytes()
    assert first == claims_report(tmp_path, tmp_path / "b.html", verdicts, table).read_bytes()
    assert b"2 claims: 1 supported, 1 refuted" in first


def test_a_run_that_tested_nothing_says_so(kept: pd.DataFrame) -> None:
    verdicts = claims.judge_all(kept, ["batchnorm-14x"], untested=True)
    html = claims_page(kept[:0], verdicts, {})
    assert "1 claim: 1 not tested" in html and "No statement that was tested has to be corrected." in html


def test_families_keep_the_order_of_the_catalogue() -> None:
    verdicts = claims.judge_all(claims.Evidence(lambda seed: [claims.Number("n", 1.0)]).rows(0), untested=True)
    named = [view.claim.id for family in families(verdicts) for view in family.claims]
    assert sorted(named) == sorted(CLAIMS)
    assert [family.anchor for family in families(verdicts)][:2] == ["family-exact--norms", "family-exact--architecture"]
