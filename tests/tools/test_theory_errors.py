"""The table of theory's errors: moments of rounds of seeds add up, and the page shows every case that is kept."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("theory_errors", ROOT / "tools" / "theory_errors.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rounds_of_seeds_have_the_moments_of_all(tool: ModuleType) -> None:
    logs = np.random.default_rng(0).normal(-3, 0.2, 11)
    row = {
        "case": "pre",
        "data": "text",
        "layer": 1,
        "stack": "decoder",
        "sublayer": "mlp",
        "site": "",
        "quantity": "grad_norm",
        "role": "up",
    }
    row |= {"depth": 2, "width": 8, "tokens": 4, "batch": 1}
    parts = [
        pd.DataFrame([row | {"mean": some.mean(), "m2": some.var() * len(some), "count": len(some)}])
        for some in (logs[:8], logs[8:])
    ]
    (found,) = tool.collect(parts).to_dict("records")
    assert found["count"] == 11 and found["mean"] == pytest.approx(logs.mean(), abs=1e-5)
    assert found["sd"] == pytest.approx(logs.std(ddof=1), abs=1e-4)


def test_measuring_goes_on_where_it_stopped(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = tool.Size(1, 16, 8, 1)
    tool.measure_all(size, ["pre"], 2, tmp_path)
    (written,) = tmp_path.glob("*.csv")
    monkeypatch.setattr(tool, "measure", None)
    tool.measure_all(size, ["pre"], 2, tmp_path)
    assert set(pd.read_csv(written)["data"]) == {"random", "text"}


def test_the_page_shows_every_case_that_is_kept(tool: ModuleType) -> None:
    kept = tool.read_kept()
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert set(kept["case"]) == set(tool.CASES)
    for (case, data), rows in kept.groupby(["case", "data"]):
        assert f"| {case} | {data} | {rows['count'].max()} |" in page


def test_an_error_is_of_the_geometric_mean(tool: ModuleType) -> None:
    key = {"stack": "decoder", "layer": 1, "sublayer": "mlp", "site": "stream", "quantity": "rms", "role": ""}
    measured = pd.DataFrame([key | {"mean": np.log(1.1), "sd": 0.4, "count": 16}])
    predicted = pd.DataFrame([key | {"value": 1.0, "sd_log": 0.3, "status": "ok"}])
    (found,) = tool.compare(measured, predicted).to_dict("records")
    assert found["error"] == pytest.approx(0.1) and found["se"] == pytest.approx(0.1)
