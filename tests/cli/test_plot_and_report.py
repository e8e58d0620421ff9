import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from normlab.cli import main
from normlab.plots import PLOTS


def normlab(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="normlab", catch_exceptions=False)


def test_plots_are_written_or_left_out_with_a_reason(run: Path, tmp_path: Path) -> None:
    found = json.loads(normlab("plot", run, "--out", tmp_path, "--json").stdout)
    drawn = {Path(path).stem for path in found["plots"]}
    assert drawn | set(found["skipped"]) == {name for name, plot in PLOTS.items() if plot.of == "recording"} and drawn
    assert {Path(path).suffix for path in found["plots"]} == {".svg", ".png"}
    assert all(Path(path).stat().st_size > 0 for path in found["plots"])


def test_one_plot_in_one_format_is_the_same_bytes_again(run: Path, tmp_path: Path) -> None:
    line = ("plot", run, "--plot", "stream_growth", "--format", "svg", "--x", "fraction", "--out", tmp_path)
    first = normlab(*line).stdout.strip()
    content = Path(first).read_bytes()
    assert normlab(*line).stdout.strip() == first == str(tmp_path / "stream_growth.svg")
    assert Path(first).read_bytes() == content


def test_an_unknown_plot_is_a_usage_error(run: Path) -> None:
    result = normlab("plot", run, "--plot", "stream_groth")
    assert result.exit_code == 2 and "did you mean 'stream_growth'" in result.stderr


def test_the_report_is_one_file(run: Path, tmp_path: Path) -> None:
    result = normlab("report", run, "--out", tmp_path / "page.html", "--json")
    assert json.loads(result.stdout) == {
        "report": str(tmp_path / "page.html"),
        "bytes": (tmp_path / "page.html").stat().st_size,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("command", ["plot", "report"])
def test_what_is_no_run_is_said(command: str, tmp_path: Path) -> None:
    assert normlab(command, tmp_path / "nothing").exit_code == 2
    result = normlab(command, tmp_path)
    assert result.exit_code == 1 and "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["plot", "report"])
def test_a_place_that_cannot_be_written_is_said(command: str, run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = normlab(command, run, "--out", tmp_path / "file" / "below")
    assert result.exit_code == 1 and "file" in result.stderr and "Traceback" not in result.stderr
