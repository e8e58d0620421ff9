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


def test_a_table_of_another_kind_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["theory", "--depth", "1", "--out", str(tmp_path / "theory.parquet")])
    assert result.exit_code == 2 and "ends neither in .csv nor in .csv.gz" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_single_token_overlaps_with_nothing() -> None:
    result = CliRunner().invoke(main, ["theory", "--depth", "1", "--width", "16", "--heads", "2", "--tokens", "1"])
    assert result.exit_code == 0 and "nan" not in result.stdout and " – " in result.stdout
