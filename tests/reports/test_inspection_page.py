"""The report of an inspection: what it leads with, and that everybody can read it."""

import shutil
from pathlib import Path

import pytest

import normlab as nl
from normlab.inspection import Inspection

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> Inspection:
    return nl.inspect(nl.build(nl.ModelSpec(depth=4, width=16, heads=2)), tokens=12)


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
    assert "No claim was judged: claims speak of models at initialisation" in page


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
