"""The report of an inspection: what it leads with, and that everybody can read it."""

import base64
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import normlab as nl
from normlab.inspection import Inspection, parse

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> Inspection:
    found = nl.inspect(nl.build(nl.ModelSpec(depth=4, width=16, heads=2)), tokens=12, seed=7)
    return found.meeting(parse(text) for text in ("stream.rms@last < 100", "loss < 0", "gate.grad_norm < 1"))


@pytest.fixture(scope="module")
def file(found: Inspection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    from normlab.reports import report

    return report(found.table, path, inspection=found)


def test_every_finding_and_every_sub_layer_is_there(file: Path, found: Inspection) -> None:
    page = file.read_text()
    assert "<h1>Inspection of Transformer</h1>" in page and "at initialisation:" not in page
    for finding in found.findings:
        assert f"<dt>{finding.topic.capitalize()}" in page
    assert page.count('<th scope="row">4 MLP</th>') == 1
    assert page.count('<th scope="col">head 1</th>') == 1 and page.count('<th scope="row">4 attention</th>') == 2


def test_a_section_with_nothing_in_it_is_not_drawn(file: Path) -> None:
    page = file.read_text()
    for section in ("run", "verdicts", "theory", "plot-last_gradient"):
        assert f'id="{section}"' not in page and f'href="#{section}"' not in page
    for link in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{link}"' in page
    assert "verdict" not in page.split("</style>")[1].split("<main")[1] and "over seeds" not in page


def test_assertions_and_their_outcome_are_there(file: Path) -> None:
    outcomes = re.findall(r"<dt>(Holds|Fails|Not checked)</dt><dd>(.*?)</dd>", file.read_text())
    assert [one for one, _ in outcomes] == ["Holds", "Fails", "Not checked"]
    assert outcomes[0][1].startswith("stream.rms@last &lt; 100: holds in 1 row") and "no gate" in outcomes[2][1]


def test_seed_versions_and_every_column_are_explained(file: Path, found: Inspection) -> None:
    page = file.read_text()
    assert "<dt>seed</dt><dd>7, of the places" in page and f"<dt>torch</dt><dd>{torch.__version__}</dd>" in page
    assert "of the documentation of Python, weights in float32" in page and "text:pydoc" not in page
    for quantity in ("median_rms", "bulk_rms", "update_ratio", "alignment", "block_change", "bf16_lost_share", "l2"):
        assert f"<dt><code>{quantity}</code></dt>" in page


def test_a_model_of_nan_has_no_table_without_columns(tmp_path: Path) -> None:
    from normlab.reports import report

    model = nl.build(nl.ModelSpec(depth=2, width=16, heads=2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    found = nl.inspect(model, tokens=8)
    page = report(found.table, tmp_path / "report.html", inspection=found).read_text()
    assert "Every sub-layer" not in page and page.count("<caption>Largest logit of every head") == 1


def test_every_line_of_a_figure_has_its_rows_and_its_query(file: Path, found: Inspection) -> None:
    page = file.read_text()
    rows = base64.b64decode(page.split("data:application/json;base64,")[1].split('"')[0])
    content = json.loads(rows)["plots"]
    for name, quantity, site in (
        ("stream_growth", "bulk_rms", "stream"),
        ("update_ratio", "median_update_ratio", "update"),
    ):
        behind = page.split(f'id="plot-{name}"')[1].split("</article>")[0].split("<details>")[1]
        assert f"quantity == &#39;{quantity}&#39;" in behind
        assert re.search(rf"<caption>[^<]*, {quantity}", behind)
        plot = content[f"{name}.{quantity}"]
        centre, status = found.table.query(plot["rows_of_the_table"]), plot["columns"].index("centre")
        assert set(centre["site"]) == {site}
        assert sorted(row[status] for row in plot["rows"]) == pytest.approx(sorted(centre["value"]))


@pytest.mark.needs("browser")
def test_axe_finds_no_violation(file: Path) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(file.as_uri())
        driver.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        driver.execute_script((ROOT / "node_modules/axe-core/axe.min.js").read_text())
        result = driver.execute_async_script("const done = arguments[0]; axe.run().then(done);")
        assert [(one["id"], one["nodes"][0]["html"]) for one in result["violations"]] == []
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 1280
    finally:
        driver.quit()
