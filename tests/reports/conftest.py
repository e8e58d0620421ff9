import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from normlab.claims import Verdict, judge, judge_all
from normlab.reports import _page, report
from normlab.reports._claims_page import claims_page
from normlab.table import read_csv


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def sim() -> ModuleType:
    """tests/plots/simulated.py."""
    return _module(Path(__file__).parents[1] / "plots" / "simulated.py")


@pytest.fixture(scope="session")
def outline() -> Callable[[Path], Any]:
    """What a page consists of: tests/reports/outline.py."""
    found: Callable[[Path], Any] = _module(Path(__file__).with_name("outline.py")).Outline
    return found


@pytest.fixture(scope="session")
def table(sim: ModuleType) -> pd.DataFrame:
    """A demo's 60 cells: two placements, six depths up to 64, five seeds."""
    return sim.sweep()


@pytest.fixture(scope="module", autouse=True)
def few_claims() -> Iterator[tuple[str, ...]]:
    """Three claims instead of all: what a card shows does not depend on how many there are."""
    ids = ("preln-variance-linear-in-depth", "preln-grad-shrinks-with-depth", "postln-output-grad-large")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_page, "judge_all", lambda table: tuple(judge(id, table) for id in ids))
        yield ids


#: Claims of every verdict and of every reason for none, exact ones and swept ones.
SHOWN = (
    "rms-keeps-signs", "gpt2-is-post-ln", "depth-12-to-80-grows-2.6x", "preln-grad-shrinks-with-depth",
    "postln-grad-vanishes", "qk-norm-grows-with-depth", "rms-faster-on-gpu", "batchnorm-14x",
)  # fmt: skip


@pytest.fixture(scope="session")
def kept() -> pd.DataFrame:
    """The kept table of all claims, its first four seeds."""
    rows = read_csv(Path(__file__).parents[2] / "docs" / "claims.csv.gz")
    return rows[rows["model_seed"] < rows["model_seed"].min() + 4]


@pytest.fixture(scope="session")
def some_verdicts(kept: pd.DataFrame) -> tuple[Verdict, ...]:
    """Verdicts on :data:`SHOWN`."""
    return judge_all(kept, SHOWN, untested=True, own=True)


@pytest.fixture(scope="session")
def claims_file(
    kept: pd.DataFrame, some_verdicts: tuple[Verdict, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The report on a run of claims."""
    path: Path = tmp_path_factory.mktemp("claims") / "report.html"
    path.write_text(claims_page(kept, some_verdicts, {"normlab": "1.2.3"}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def file(table: pd.DataFrame, few_claims: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on these 60 cells."""
    return report(table, tmp_path_factory.mktemp("report") / "report.html")
