import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import normlab as nl
from normlab.cli import main
from normlab.table import read_csv

SMALL = "--width 8 --heads 2 --tokens 4 --probes 4"


def jacobian(line: str) -> Result:
    return CliRunner().invoke(main, ["jacobian", *line.split()], prog_name="normlab", catch_exceptions=False)


def test_a_folder_gets_the_table_with_theory_and_the_plots(tmp_path: Path) -> None:
    result = jacobian(f"{SMALL} --placements pre,post --depth 2 --seeds 2 --directions 1 --json --out {tmp_path}")
    assert result.exit_code == 0, result.stderr
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*") if path.is_file())
    plots = [f"plots/{name}.{suffix}" for name in ("layer_exponents", "singular_values") for suffix in ("png", "svg")]
    assert names == ["jacobian.csv.gz", *plots]
    table = read_csv(tmp_path / "jacobian.csv.gz")
    assert set(table["source"]) == {"measured", "theory"} and set(table["model_seed"].dropna()) == {0, 1}
    found = json.loads(result.stdout)
    assert len(found["rows"]) + len(found["theory"]) == len(table)
    assert "theory" in result.stderr and "APJN to L" in result.stderr


def test_the_numbers_are_those_of_the_library() -> None:
    result = jacobian(f"{SMALL} --depth 2 --seed 3 --quantity singular_value --k 1 --json")
    values = [row["value"] for row in json.loads(result.stdout)["rows"]]
    model = nl.build(nl.ModelSpec(depth=2, width=8, heads=2), seed=3)
    found = nl.jacobian.parts(model, nl.data.random_batch(batch=1, tokens=4, seed=10_003))
    for layer, value in enumerate(values, 1):
        block = found.block(layer)
        assert value == pytest.approx(nl.jacobian.spectral_norm(block, block.point), rel=1e-9)


def test_parts_with_all_their_singular_values(tmp_path: Path) -> None:
    words = [*f"{SMALL} --depth 2 --full --json --norm-eps 1e-30 --out {tmp_path}".split()]
    for part in ("block 2", "block 2 attn norm", "all"):
        words += ["--part", part]
    result = CliRunner().invoke(main, ["jacobian", *words], prog_name="normlab", catch_exceptions=False)
    block, norm, whole = json.loads(result.stdout)["parts"]
    assert [one["part"] for one in (block, norm, whole)] == ["block 2", "block 2 attn inner norm", "end to end"]
    assert (block["rank"], norm["rank"], norm["shape"]) == (32, 24, [32, 32])
    assert block["condition"] == pytest.approx(block["singular_values"][0] / block["singular_values"][-1])
    assert norm["log_volume"] == pytest.approx(float(np.log(norm["singular_values"][:24]).sum()))
    assert max(whole["residuals"]) < 1e-12
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        "block_2_attn_inner_norm.png",
        "block_2_attn_inner_norm.svg",
    ]


def test_norms_over_a_batch_take_its_statistics() -> None:
    result = jacobian(f"{SMALL} --depth 1 --norm batchnorm --quantity lyapunov --json")
    assert result.exit_code == 0 and len(json.loads(result.stdout)["rows"]) == 2


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("--part middle", 1, "'middle' names no part: give all, block 3"),
        ("--dropout 0.1", 2, "leave --dropout out"),
        ("--placement prre", 2, "did you mean 'pre'"),
        ("--quantity rms", 2, "is not one of 'apjn'"),
        ("--probes 1", 2, "1 is not in the range"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(line: str, code: int, sentence: str) -> None:
    result = jacobian(f"--depth 1 --width 8 --heads 2 --tokens 4 {line}")
    assert result.exit_code == code and sentence in result.stderr and "Traceback" not in result.stderr
    assert result.stderr.strip().count("\n") <= 4
