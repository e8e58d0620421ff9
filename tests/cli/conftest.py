from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from normlab.cli import main

SMALL = "--depths 1,2,3 --width 8 --heads 2 --mlp-width 8 --batch 2 --tokens 8 --jobs 1"


def invoke(line: str) -> Result:
    """Run a command line in this process."""
    return CliRunner().invoke(main, line.split(), prog_name="normlab", catch_exceptions=False)


@pytest.fixture(autouse=True)
def _as_wide_as_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests that run side by side are told of a terminal of 80 columns.
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny sweep, data alone."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    result = invoke(f"sweep {SMALL} --placements pre,post --seeds 3 --no-report --out {folder}")
    assert result.exit_code == 0, result.output
    return folder
