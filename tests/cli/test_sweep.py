import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import normlab
import normlab.sweeps
from normlab.cli import main

SMALL = "--depths 1,2,3 --width 8 --heads 2 --mlp-width 8 --batch 2 --tokens 8 --jobs 1"


def sweep(line: str) -> Result:
    return CliRunner().invoke(main, ["sweep", *line.split()], prog_name="normlab", catch_exceptions=False)


def test_the_main_job_leaves_data_plots_verdicts_and_a_report(tmp_path: Path) -> None:
    result = sweep(f"{SMALL} --placements pre,post --seeds 3 --json --out {tmp_path / 'run'}")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["cells"] == 18 and found["failed"] == 0
    assert {claim["id"] for claim in found["claims"]} <= set(normlab.claims.CLAIMS)
    files = [Path(found["report"]), *map(Path, found["plots"])]
    files += [tmp_path / "run" / name for name in ("run.json", "cells.jsonl", "results.csv.gz")]
    assert all(path.stat().st_size > 0 for path in files)
    assert found["report"] in result.stderr
    assert "claims not tested: " in result.stderr and "computations of their own" in result.stderr


def test_the_same_command_measures_nothing_again(run: Path) -> None:
    before = (run / "cells.jsonl").read_bytes()
    result = sweep(f"{SMALL} --placements pre,post --seeds 3 --no-report --out {run}")
    assert result.exit_code == 0 and (run / "cells.jsonl").read_bytes() == before


def test_a_larger_grid_extends_a_run(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    result = sweep(f"{SMALL} --placements pre,post --seeds 4 --no-report --out {tmp_path / 'run'}")
    assert result.exit_code == 0
    assert len((tmp_path / "run" / "cells.jsonl").read_text().splitlines()) == 24


def test_what_is_measured_is_what_the_library_measures(run: Path) -> None:
    specs = normlab.grid(placement=["pre", "post"], depth=[1, 2, 3], width=8, heads=2, mlp_width=8)
    direct = normlab.sweep(specs, seeds=range(3), data=normlab.data.Text(batch=2, tokens=8), jobs=1)
    assert normlab.table.to_csv_bytes(normlab.load(run)) == normlab.table.to_csv_bytes(direct)


def test_what_is_resumed_is_said(run: Path) -> None:
    line = f"{SMALL} --placements pre,post --seeds 4 --dry-run --out {run}"
    assert "24 cells (6 models × 4 seeds)" in sweep(line).stdout
    assert "18 already there, 6 to run" in sweep(line).stdout
    assert json.loads(sweep(f"{line} --json").stdout)["present"] == 18


def test_a_report_of_an_earlier_state_is_named(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    page = tmp_path / "run" / "report.html"
    page.touch()
    command = f"{SMALL} --placements pre,post --no-report --out {tmp_path / 'run'}"
    assert "earlier state" not in sweep(f"{command} --seeds 3").stderr
    os.utime(page, (0, 0))
    assert f"{page} shows an earlier state" in sweep(f"{command} --seeds 4").stderr


def test_one_thing_is_singular(tmp_path: Path) -> None:
    said = sweep(f"--depth 1 --width 8 --seeds 1 --dry-run --out {tmp_path}").stdout
    assert said.startswith("1 cell (1 model × 1 seed)")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    result = sweep(f"{SMALL} --norms layernorm,rmsnorm --seeds 4 --dry-run --json --out {tmp_path / 'run'}")
    assert json.loads(result.stdout)["cells"] == 24 and not list(tmp_path.iterdir())


def test_the_folder_is_named_after_models_and_data_but_not_seeds() -> None:
    def folder(line: str) -> str:
        return str(json.loads(sweep(f"--depth 1 --width 8 --dry-run --json {line}").stdout)["out"])

    assert folder("") == folder("--seeds 9") == folder("--depths 1")
    assert len({folder(""), folder("--random"), folder("--norm rmsnorm"), folder("--batch 1")}) == 4


def test_seeds_count_from_the_seed(tmp_path: Path) -> None:
    sweep(f"--depth 1 --width 8 --tokens 8 --jobs 1 --seed 7 --seeds 2 --no-report --quiet --out {tmp_path}")
    assert set(normlab.load(tmp_path)["model_seed"]) == {7, 8}
    assert set(normlab.load(tmp_path)["data_seed"]) == {10007, 10008}


def test_a_text_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Größe und Tiefe " * 20, encoding="utf-8")
    result = sweep(f"--depth 1 --width 8 --tokens 8 --jobs 1 --no-report --text {tmp_path}/text --out {tmp_path}/run")
    assert result.exit_code == 0, result.stderr


BAD = {
    "unknown placement": ("--placement per --depth 1 --width 8", 2, "did you mean"),
    "depth 0": ("--depth 0 --width 8", 2, "at least 1"),
    "width and heads": ("--depth 1 --width 10", 2, "not divisible by 4 heads"),
    "no such option": ("--depth 1 --width 8 --norm-option gian=false", 2, "did you mean 'gain'"),
    "text and random": ("--depth 1 --width 8 --text {}/whole --random", 2, "exclude each other"),
    "no text": ("--depth 1 --width 8 --text {}/nothing", 1, "nothing"),
    "a folder as text": ("--depth 1 --width 8 --text {}", 1, "text"),
    "empty text": ("--depth 1 --width 8 --text {}/empty", 1, "empty"),
    "binary text": ("--depth 1 --width 8 --text {}/binary", 1, "UTF-8"),
    "no plugin": ("--depth 1 --width 8 --plugin no_such_module", 2, "cannot be imported"),
    "a file as folder": ("--depth 1 --width 8 --out {}/whole", 1, "whole"),
    "a folder in a file": ("--depth 1 --width 8 --out {}/whole/run", 1, "whole"),
}


@pytest.mark.parametrize(("line", "code", "complaint"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(line: str, code: int, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "whole").write_text("a text that is long enough for a batch " * 9)
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    before = sorted(tmp_path.iterdir())
    result = sweep(f"--jobs 1 --tokens 8 --no-report --out {tmp_path}/run {line.format(tmp_path)}")
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert complaint in " ".join(result.stderr.split()) and "Traceback" not in result.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_of_another_schema_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    header = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(header | {"schema_version": 999}))
    result = sweep(f"{SMALL} --no-report --out {tmp_path / 'run'}")
    assert result.exit_code == 1 and "999" in result.stderr


def test_other_data_in_the_same_folder_is_refused(run: Path) -> None:
    result = sweep(f"{SMALL} --random --no-report --out {run}")
    assert result.exit_code == 1 and str(run) in result.stderr


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, BaseException], None]:
    """Make a model of one depth raise when it is built."""
    from normlab.sweeps import cells

    build = cells.build

    def install(depth: int, error: BaseException) -> None:
        def planted(spec: normlab.ModelSpec, **kwargs: object) -> object:
            if spec.depth == depth:
                raise error
            return build(spec, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(cells, "build", planted)

    return install


def test_failed_cells_are_named_and_the_others_saved(
    failing: Callable[[int, BaseException], None], tmp_path: Path
) -> None:
    failing(2, RuntimeError("planted"))
    result = sweep(f"{SMALL} --seeds 2 --no-report --json --out {tmp_path}")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["failed"] == 2
    assert "depth 2" in result.stderr and "planted" in result.stderr
    assert set(normlab.load(tmp_path)["depth"]) == {1, 3}


def test_an_interrupt_keeps_what_is_done_and_the_next_run_goes_on(
    failing: Callable[[int, BaseException], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(1, KeyboardInterrupt())
    result = sweep(f"{SMALL} --seeds 1 --no-report --out {tmp_path}")
    assert result.exit_code == 130 and "2 of 3 cells are saved" in result.stderr
    monkeypatch.undo()
    assert sweep(f"{SMALL} --seeds 1 --no-report --out {tmp_path}").exit_code == 0
    assert set(normlab.load(tmp_path)["depth"]) == {1, 2, 3}


def test_progress_is_said_where_there_is_no_terminal(tmp_path: Path) -> None:
    said = sweep(f"{SMALL} --seeds 1 --no-report --out {tmp_path}").stderr
    assert "3 cells (3 models × 1 seed)" in said and "3 of 3 cells" in said
    assert sweep(f"{SMALL} --seeds 1 --no-report --quiet --out {tmp_path}").stderr == ""


def test_a_plugin_brings_a_norm_to_every_worker(tmp_path: Path) -> None:
    (tmp_path / "my_norms.py").write_text(
        "from dataclasses import replace\nimport normlab\nfrom normlab.norms import NORMS\n"
        "normlab.register_norm(replace(NORMS['identity'], name='mine'))\n"
    )
    line = "--depths 1,2 --width 8 --tokens 8 --jobs 2 --seeds 2 --norm mine --plugin my_norms --no-report --out run"
    # A process of its own: a registration would stay in this one.
    command = [sys.executable, "-m", "normlab", "sweep", *line.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(normlab.load(tmp_path / "run")["norm"]) == {"mine"}
