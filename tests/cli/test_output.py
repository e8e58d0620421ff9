import json
from pathlib import Path

import pytest

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
