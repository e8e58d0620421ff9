import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from normlab.benchmarks import WAYS
from normlab.cli import bench_norms, main


def bench(*words: str) -> Result:
    return CliRunner().invoke(main, ["bench", "norms", *words], prog_name="normlab", catch_exceptions=False)


def test_json_and_out_hold_the_same(tmp_path: Path) -> None:
    words = ("--sizes", "2x16", "--way", "numpy", "--way", "fused", "--pass", "forward", "--rounds", "25")
    result = bench(*words, "--json", "--out", str(tmp_path / "bench.json"))
    found = json.loads(result.stdout)
    assert found == json.loads((tmp_path / "bench.json").read_text())
    assert found["settings"]["threads"] == 1 and found["machine"]["system"]
    assert [(row["norm"], row["way"]) for row in found["times"]] == [
        ("", "copy"), ("layernorm", "numpy"), ("layernorm", "fused"), ("rmsnorm", "numpy"), ("rmsnorm", "fused"),
    ]  # fmt: skip
    assert "1 thread" in result.stderr and "of a copy" in result.stderr
    ratio = found["ratios"][0]
    assert f"{ratio['ratio']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]" in result.stderr


@pytest.mark.parametrize("given", ["8x0", "8", "x", "8x8,"])
def test_a_size_is_rows_and_features(given: str) -> None:
    result = bench("--sizes", given)
    assert result.exit_code == 2 and "32x256" in result.stderr


def test_the_command_offers_every_way() -> None:
    assert set(bench_norms._WAYS) == set(WAYS)
