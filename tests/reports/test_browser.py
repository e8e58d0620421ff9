import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from normlab.reports._page import page
from normlab.reports._source import Source
from normlab.sweeps import Record

pytestmark = pytest.mark.needs("browser")

AXE = Path(os.environ.get("NORMLAB_AXE", Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"))
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
)


@pytest.fixture(scope="module", params=["sweep", "claims"])
def file(sim: ModuleType, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every kind of section; axe takes seconds for the thousands of cells of a larger one."""
    if request.param == "claims":
        made: Path = request.getfixturevalue("claims_file")
        return made
    failed = (Record("x", "failed", "pre depth 8", "spec", 0, 10000, error="ValueError: something"),)
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    table = sim.sweep(depths=(2, 8), seeds=3).query("quantity != 'update_ratio'")
    path.write_text(page(Source(table, load="table = ...", failed=failed, unfinished=1)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(file: Path) -> Iterator[Any]:
    """Chromium with the report open, everything unfolded."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(file.as_uri())
        driver.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        yield driver
    finally:
        driver.quit()


def colours(browser: Any, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser: Any, scheme: str) -> None:
    colours(browser, scheme)
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done);")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert {"color-contrast", "heading-order", "svg-img-alt"} <= {one["id"] for one in found["passes"]}


def test_nothing_is_said_on_the_console_and_nothing_is_fetched(browser: Any, file: Path) -> None:
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert {url for url in urls if not url.startswith("data:")} == {file.as_uri()}


def test_no_id_is_there_twice(browser: Any) -> None:
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids)) > 30


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_keyboard_reaches_content_and_folds(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    body = browser.find_element("tag name", "body")
    body.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("class") == "skip"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "main"
    summary = browser.find_element("css selector", "#plots summary, #details summary")
    before = summary.find_element("xpath", "..").get_attribute("open")
    summary.send_keys(Keys.ENTER)
    assert summary.find_element("xpath", "..").get_attribute("open") != before
