import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from normlab.claims import CLAIMS, judge, judge_all, judging
from normlab.digits import minus
from normlab.errors import DataError, RunError
from normlab.plots import PLOTS
from normlab.reports import _page, report
from normlab.reports._page import page
from normlab.reports._source import Source
from normlab.reports._text import means_line, subscripted, title, untested
from normlab.sweeps import Record
from normlab.table import COLUMNS, QUANTITIES, SITES

#: The plots of a sweep's table.
SWEPT = {name: plot for name, plot in PLOTS.items() if plot.of in ("recording", "jacobian")}


@pytest.fixture(scope="module")
def shown(file: Path, outline: Callable[[Path], Any]) -> Any:
    return outline(file)


@pytest.fixture(scope="module")
def embedded(shown: Any) -> dict[str, Any]:
    link = next(link for link in shown.links if link.startswith("data:application/json"))
    content: dict[str, Any] = json.loads(base64.b64decode(link.split(",", 1)[1]))
    return content


def test_sixty_cells_stay_under_two_megabytes(file: Path) -> None:
    assert file.stat().st_size < 2_000_000


def test_the_same_table_gives_the_same_bytes(sim: ModuleType, tmp_path: Path) -> None:
    table = sim.cell("pre", 4, 0)
    assert report(table, tmp_path / "a.html").read_bytes() == report(table.copy(), tmp_path / "b.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_no_id_is_there_twice_and_every_reference_is_met(file: Path, shown: Any) -> None:
    text = file.read_text(encoding="utf-8")
    inner = {link[1:] for link in shown.links if link.startswith("#")}
    referred = {name for _, attrs in shown.elements for name in (attrs.get("aria-labelledby") or "").split()}
    clips = {part.split(")")[0] for part in text.split("url(#")[1:]}
    assert len(shown.ids) == len(set(shown.ids)) > 100
    assert inner | referred | clips <= set(shown.ids)


def test_nothing_is_fetched_and_no_script_runs(file: Path, shown: Any) -> None:
    assert all(link.startswith(("#", "data:")) for link in shown.links)
    assert "script" not in {tag for tag, _ in shown.elements}
    style = file.read_text(encoding="utf-8").split("</style>")[0]
    assert "@import" not in style and "url(" not in style


def test_headings_are_in_order(shown: Any) -> None:
    assert shown.headings[0] == 1 and shown.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(shown.headings, shown.headings[1:], strict=False))


def test_every_plot_says_what_it_shows(shown: Any, table: pd.DataFrame) -> None:
    said = shown.within("desc")
    assert said == [plot.finding(table) for plot in SWEPT.values()]
    figures = [attrs for tag, attrs in shown.elements if tag == "svg" and attrs.get("role") == "img"]
    assert len(figures) == len(SWEPT)


def test_the_embedded_rows_are_the_plotted_ones_in_full_precision(
    embedded: dict[str, Any], table: pd.DataFrame
) -> None:
    assert list(embedded["plots"]) == list(SWEPT)
    for name, plot in SWEPT.items():
        points, content = plot.aggregated(table), embedded["plots"][name]
        rows = pd.DataFrame(content["rows"], columns=content["columns"])
        rows = rows[rows["source"] == "measured"]
        for column in ("centre", "low", "high", "smallest", "largest", "seeds"):
            np.testing.assert_array_equal(rows[column].to_numpy(float), points[column].to_numpy(float))


def test_an_embedded_number_can_be_traced_to_its_rows(embedded: dict[str, Any], table: pd.DataFrame) -> None:
    content = embedded["plots"]["update_ratio"]
    row = dict(zip(content["columns"], content["rows"][37], strict=True))
    same = " and ".join(f"{name} == {row[name]!r}" for name in ("placement", "depth", "layer", "sublayer"))
    rows = table.query(f"{content['rows_of_the_table']} and {same}")
    assert len(rows) == row["seeds"] == 5
    assert np.exp(np.log(rows["value"]).mean()) == pytest.approx(row["centre"], rel=1e-12)


def test_every_verdict_has_its_card(file: Path, shown: Any, table: pd.DataFrame, few_claims: tuple[str, ...]) -> None:
    text = file.read_text(encoding="utf-8")
    for verdict in (judge(id, table) for id in few_claims):
        assert f"claim-{verdict.id}" in shown.ids
        assert verdict.statement in shown.within("h3")
        assert str(verdict.rows["hash"]) in text and verdict.rule_hash in text
        assert all(minus(regime.rule) in text for regime in verdict.regimes)


def test_everything_that_a_query_names_is_defined(shown: Any) -> None:
    words = shown.within("code")
    for name in ("rms", "mean_square", "update_ratio", "grad_norm", "grad_coherence", "token_overlap"):
        assert name in words and QUANTITIES[name].definition in shown.within("dd")
    for name in ("stream", "input", "update", "skip", "stream_grad"):
        assert name in words and SITES[name].definition in shown.within("dd")


def test_the_line_below_a_figure_gives_its_means(table: pd.DataFrame) -> None:
    for name, mean in (("stream_growth", "np.exp("), ("token_overlap", "rows.groupby(")):
        points = PLOTS[name].aggregated(table)
        scope = {"table": table, "np": np}
        code = means_line(PLOTS[name], points, table)
        exec(code, scope)
        assert f"means = {mean}" in code
        np.testing.assert_allclose(np.sort(scope["means"]), np.sort(points["centre"]), rtol=1e-12)


def test_the_page_says_which_means_its_figures_show(file: Path) -> None:
    text = " ".join(file.read_text(encoding="utf-8").split())
    assert "geometric in figures 1, 2, 3, 4, 5, 6, 8; arithmetic in figures 7, 9." in text


def test_symbols_have_subscripts_and_column_names_have_none() -> None:
    assert subscripted("√q_L < G_{L/4} of mean_square") == ("√q<sub>L</sub> &lt; G<sub>L/4</sub> of mean_square")


def test_a_regime_that_was_not_tested_says_what_the_table_lacks(table: pd.DataFrame) -> None:
    verdict = judge("preln-grad-shrinks-with-depth", table)
    (regime,) = [regime for regime in verdict.regimes if regime.name == "final norm off"]
    assert untested(verdict, regime).startswith("Not tested: the table has no Pre-LN models")


def test_an_exact_verdict_has_neither_interval_nor_p(table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judge("preln-grad-shrinks-with-depth", table)
    exact = tuple(replace(regime, level=1.0) for regime in verdict.regimes if regime.verdict != "not-tested")
    monkeypatch.setattr(_page, "judge_all", lambda table: (replace(verdict, regimes=exact, p_holm=0.5),))
    card = page(Source(table, load="")).split("<article")[1].split("</article>")[0]
    assert "of 5 draws: " in card and "% interval" not in card and "Holm" not in card


def test_titles(sim: ModuleType) -> None:
    def of(*cells: pd.DataFrame) -> str:
        return title(Source(pd.concat(cells), load=""))

    pre, deep, post = sim.cell("pre", 2, 0), sim.cell("pre", 4, 0), sim.cell("post", 2, 0, rate=0.0)
    assert of(pre, deep, post) == "Depth sweep: pre and post, depths 2 to 4"
    assert of(pre, post) == "Placements: pre and post, depth 2" and of(pre) == "One model: pre, depth 2"


def test_a_claim_that_raises_is_listed_and_the_others_are_judged(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(rows: pd.DataFrame) -> None:
        raise DataError("one seed has several rows")

    known = CLAIMS["postln-output-grad-large"]
    broken = replace(known.regimes[0], statistic=replace(known.regimes[0].statistic, sample=raises))
    ids = ("preln-grad-shrinks-with-depth", "postln-output-grad-large")
    claims = {ids[0]: CLAIMS[ids[0]], ids[1]: replace(known, regimes=(broken,))}
    monkeypatch.setattr(judging, "CLAIMS", claims)
    monkeypatch.setattr(_page, "judge_all", judge_all)
    assert [verdict.verdict == "not-tested" for verdict in judge_all(table)] == [False, True]
    text = page(Source(table, load=""))
    assert "Not judged: one seed has several rows." in text and f'id="claim-{ids[0]}"' in text


def test_failed_cells_are_listed(sim: ModuleType) -> None:
    failed = Record("x", "crashed", "pre <depth> 8", "spec", 0, 10000, error="killed & gone")
    html = page(Source(sim.cell("pre", 4, 0), load="table = nl.load('x')", failed=(failed,), unfinished=2))
    assert "1 cell failed, 2 not run." in html
    assert "pre &lt;depth&gt; 8" in html and "killed &amp; gone" in html


def test_plots_that_cannot_be_drawn_are_named(sim: ModuleType, tmp_path: Path) -> None:
    poor = sim.cell("pre", 4, 0).query("site != 'update' and quantity != 'grad_norm'")
    text = report(poor, tmp_path / "report.html").read_text(encoding="utf-8")
    for name in ("update_ratio", "last_gradient", "gradient_profile"):
        assert f"<code>{name}</code>: the table has no rows of" in text


def test_what_is_not_finite_is_said(sim: ModuleType, tmp_path: Path) -> None:
    broken = sim.sweep(("pre",), depths=(4,), seeds=2)
    hit = broken["layer"] == 2
    broken = broken.assign(
        value=broken["value"].mask(hit, np.inf), status=broken["status"].astype(object).mask(hit, "nonfinite")
    )
    text = report(broken, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2 not finite" in text and "NaN" not in text


def test_one_recorded_model_has_a_report(sim: ModuleType, outline: Callable[[Path], Any], tmp_path: Path) -> None:
    bare = sim.cell("pre", 4, 0)[list(COLUMNS)]
    found = outline(report(bare, tmp_path / "report.html"))
    assert found.within("h1") == ["Recorded model"] and "No claim was judged" in " ".join(found.within("p"))


def test_depth_1000_thins_the_page_and_not_the_file(sim: ModuleType, tmp_path: Path) -> None:
    text = report(sim.sweep(("pre",), depths=(1000,), seeds=2), tmp_path / "report.html").read_text(encoding="utf-8")
    assert "of 1001 layers; all are in the JSON file" in text
    rows = base64.b64decode(text.split("data:application/json;base64,")[1].split('"')[0])
    sources = [source for source, *_ in json.loads(rows)["plots"]["stream_growth"]["rows"]]
    assert sources.count("measured") == sources.count("theory") == 1001


def test_what_is_no_run_and_no_table_is_refused(tmp_path: Path, sim: ModuleType) -> None:
    with pytest.raises(RunError, match="does not exist"):
        report(tmp_path / "nothing", tmp_path / "report.html")
    with pytest.raises(DataError, match="no column 'source'"):
        report(pd.DataFrame({"a": [1]}), tmp_path / "report.html")
    with pytest.raises(DataError, match="no rows"):
        report(sim.cell("pre", 2, 0).iloc[:0], tmp_path / "report.html")
    assert not list(tmp_path.iterdir())
