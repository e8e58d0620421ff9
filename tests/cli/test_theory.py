import json
from pathlib import Path

from click.testing import CliRunner

from normlab.cli import main
from normlab.table import read_csv


def test_a_page_on_the_error_output_json_and_a_table(tmp_path: Path) -> None:
    out = tmp_path / "theory.csv.gz"
    line = f"theory --placement lns --attention none --depth 3 --width 32 --tokens 8 --json --out {out}"
    result = CliRunner().invoke(main, line.split(), prog_name="normlab", catch_exceptions=False)
    (found,) = json.loads(result.stdout)
    assert found["laws"]["stream"]["name"] == "logarithm"
    assert "x ← x + F(0.5774·N(x))" in result.stderr and "As the depth L grows" in result.stderr
    assert set(read_csv(out)["source"]) == {"theory"}
