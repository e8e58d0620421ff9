import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from normlab.cli import main
from normlab.cli.output import Output, write_json


def test_json_has_the_standard_output_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.note("note")
    output.result("result")
    output.machine({"x": 1.5})
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {"x": 1.5}
    assert streams.err == "note\nresult\n"


def test_results_go_to_the_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(quiet=True)
    output.note("note")
    output.result("result")
    output.machine({"x": 1.5})
    assert capsys.readouterr() == ("result\n", "")


def test_a_non_finite_number_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        Output(as_json=True).machine(float("nan"))


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "new" / "x.json", float("inf"))
    assert not list(tmp_path.rglob("*.json")) and not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("mark", ["run.json", "inspection.json", "comparison.json", "jacobian.csv.gz"])
@pytest.mark.parametrize(
    "command",
    [
        "sweep --placement pre --depth 1 --width 8",
        "inspect nowhere",
        "compare nowhere nowhere",
        "jacobian",
        "claims run",
    ],
)
def test_a_folder_of_another_command_is_refused_before_anything_runs(command: str, mark: str, tmp_path: Path) -> None:
    own = {"sweep": "run", "inspect": "inspection", "compare": "comparison", "claims": "run"}
    if mark.startswith(own.get(command.split()[0], command)):
        return
    (tmp_path / mark).write_text("")
    result = CliRunner().invoke(main, [*command.split(), "--out", str(tmp_path)], prog_name="normlab")
    assert result.exit_code == 1 and f"({mark}): choose another place with --out" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [mark]
