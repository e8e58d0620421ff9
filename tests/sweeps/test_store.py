"""A run folder: created, resumed, extended, refused, and repaired."""

import errno
import json
import os

import pytest

from normlab import table
from normlab.data import Random, Text
from normlab.errors import RunError
from normlab.sweeps import grid, load, read_run, sweep, workers
from normlab.sweeps.cells import run_cell
from normlab.sweeps.lock import locked
from normlab.sweeps.records import SweepWarning

DATA = Random(2, 8)


@pytest.fixture
def ran(monkeypatch):
    """The cells that have been run since the list was cleared, as (depth, seed)."""
    cells = []

    def counted(cell):
        cells.append((cell.spec.depth, cell.seed))
        return run_cell(cell)

    monkeypatch.setattr(workers, "run_cell", counted)
    return cells


def _sweep(out, depths=(1, 2), seeds=(0, 1), **options):
    return sweep(grid(depth=list(depths), width=8), seeds=seeds, out=out, jobs=1, **{"data": DATA} | options)


def test_the_same_call_computes_nothing_again(tmp_path, ran):
    first = _sweep(tmp_path / "run")
    content = (tmp_path / "run" / "results.csv.gz").read_bytes()
    assert sorted(ran) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    ran.clear()
    assert _sweep(tmp_path / "run").equals(first)
    assert ran == [] and (tmp_path / "run" / "results.csv.gz").read_bytes() == content


def test_a_larger_grid_extends_the_run(tmp_path, ran):
    _sweep(tmp_path / "grown")
    ran.clear()
    grown = _sweep(tmp_path / "grown", depths=(1, 2, 3), seeds=(0, 1, 2))
    assert sorted(ran) == [(1, 2), (2, 2), (3, 0), (3, 1), (3, 2)]
    assert grown.equals(_sweep(tmp_path / "whole", depths=(1, 2, 3), seeds=(0, 1, 2)))
    run = read_run(tmp_path / "grown")
    assert (run.planned, run.unfinished, run.seeds, len(run.grid)) == (9, 0, (0, 1, 2), 3)


def test_the_same_cells_give_the_same_bytes_whatever_the_order(tmp_path):
    _sweep(tmp_path / "a", depths=(2, 1), seeds=(1, 0))
    _sweep(tmp_path / "b", depths=(1,), seeds=(0, 1))
    _sweep(tmp_path / "b", depths=(1, 2), seeds=(0, 1))
    first, second = ((tmp_path / name / "results.csv.gz").read_bytes() for name in "ab")
    assert first == second


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": Random(2, 9)}, "another data source"),
        ({"data": Text(2, 8)}, "another data source"),
        ({"dtype": "float64"}, "another dtype .float32, now float64."),
        ({"sites": ["stream"]}, "another choice of sites"),
        ({"quantities": ["rms"]}, "another choice of quantities"),
    ],
)
def test_another_kind_of_run_is_refused_before_anything_is_written(tmp_path, ran, options, words):
    _sweep(tmp_path, depths=(1,))
    ran.clear()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=words):
        _sweep(tmp_path, **options)
    assert ran == [] and before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_another_schema_is_refused(tmp_path):
    _sweep(tmp_path, depths=(1,))
    header = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(header | {"schema_version": 0}))
    for call in (_sweep, load, read_run):
        with pytest.raises(RunError, match="has tables of schema 0 and this normlab writes schema"):
            call(tmp_path)


def test_a_damaged_header_is_refused(tmp_path):
    _sweep(tmp_path, depths=(1,))
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read as the header of a run"):
        _sweep(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(RunError, match="has cells.jsonl and no run.json"):
        _sweep(tmp_path)


def test_other_versions_are_told(tmp_path):
    _sweep(tmp_path, depths=(1,))
    header = json.loads((tmp_path / "run.json").read_text())
    header["versions"]["torch"] = "1.0"
    (tmp_path / "run.json").write_text(json.dumps(header))
    with pytest.warns(SweepWarning, match="goes on with other versions: torch 1.0 →"):
        _sweep(tmp_path)


def test_a_torn_last_line_costs_its_cell_alone(tmp_path, ran):
    whole = _sweep(tmp_path)
    lines = tmp_path / "cells.jsonl"
    lines.write_bytes(lines.read_bytes()[:-20])
    ran.clear()
    with pytest.warns(SweepWarning, match="a torn line is left out"):
        assert _sweep(tmp_path).equals(whole)
    assert len(ran) == 1 and lines.read_bytes().count(b"\n") == 4
    assert len(read_run(tmp_path).ok) == 4


@pytest.mark.parametrize("harm", ["remove", "cut", "flip"])
def test_a_damaged_cell_is_computed_again(tmp_path, ran, harm):
    whole = _sweep(tmp_path)
    path = next((tmp_path / "cells").iterdir())
    content = path.read_bytes()
    flipped = content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]
    path.write_bytes({"remove": b"", "cut": content[:-9], "flip": flipped}[harm])
    if harm == "remove":
        path.unlink()
    ran.clear()
    with pytest.warns(SweepWarning, match="the file of a cell is missing or damaged"):
        assert _sweep(tmp_path).equals(whole)
    assert len(ran) == 1


def test_failed_cells_are_named_and_tried_again(tmp_path, monkeypatch):
    def picky(cell):
        if cell.spec.depth == 2:
            raise ValueError("no depth 2")
        return run_cell(cell)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "run_cell", picky)
        with pytest.warns(SweepWarning, match="2 of 4 cells failed: pre layernorm depth 2 .*ValueError: no depth 2"):
            partial = _sweep(tmp_path)
    assert partial["depth"].unique().tolist() == [1]
    run = read_run(tmp_path)
    assert [record.error for record in run.failed] == [run.failed[0].error] * 2 and len(run.ok) == 2
    assert _sweep(tmp_path)["depth"].unique().tolist() == [1, 2]
    assert read_run(tmp_path).failed == ()


def test_no_cell_that_works_is_an_error(tmp_path, monkeypatch):
    def broken(_):
        raise ValueError("nothing works")

    monkeypatch.setattr(workers, "run_cell", broken)
    with pytest.raises(RunError, match="no cell worked: all 4 failed, the first .*nothing works"):
        _sweep(tmp_path)
    assert len(read_run(tmp_path).failed) == 4


def test_what_a_killed_run_left_is_removed(tmp_path):
    (tmp_path / "cells").mkdir()
    left = [tmp_path / "cells" / "1.started", tmp_path / "cells" / ".1.csv.gz.part", tmp_path / ".results.csv.gz.part"]
    for path in left:
        path.touch()
    _sweep(tmp_path, depths=(1,))
    assert not any(path.exists() for path in left)
    assert {path.name for path in tmp_path.iterdir()} >= {"run.json", "cells.jsonl", "cells", "results.csv.gz"}


def test_two_runs_are_kept_apart(tmp_path):
    with locked(tmp_path), pytest.raises(RunError, match="is being written by process"):
        _sweep(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written .Not a directory.") as error:
        _sweep(tmp_path / "file" / "run")
    assert "\n" not in str(error.value)


def test_a_full_disk_keeps_what_is_done(tmp_path, monkeypatch, ran):
    write = workers.write_bytes

    def filling(path, content):
        if len(ran) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    def told(path, content):
        from normlab.sweeps.files import writing

        with writing(path):
            filling(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "write_bytes", told)
        with pytest.raises(RunError, match="No space left on device.*what was finished is kept"):
            _sweep(tmp_path)
    assert len(read_run(tmp_path).ok) == 2
    ran.clear()
    _sweep(tmp_path)
    assert len(ran) == 2


def test_ctrl_c_keeps_what_is_done(tmp_path, monkeypatch, ran):
    def interrupted(progress):
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _sweep(tmp_path, progress=interrupted)
    assert len(read_run(tmp_path).ok) == 3 and read_run(tmp_path).unfinished == 1
    assert len(load(tmp_path)["spec"]) > 0 and not (tmp_path / "results.csv.gz").exists()
    ran.clear()
    _sweep(tmp_path)
    assert len(ran) == 1


def test_the_header_says_what_was_run(tmp_path):
    _sweep(tmp_path, depths=(1, 2), seeds=(3, 4))
    header = json.loads((tmp_path / "run.json").read_text())
    assert [entry["spec"] for entry in header["grid"]] == [{"depth": 1, "width": 8}, {"depth": 2, "width": 8}]
    assert (header["seeds"], header["data"], header["dtype"]) == ([3, 4], DATA.to_dict(), "float32")
    assert header["schema_version"] == table.SCHEMA_VERSION
    assert {"normlab", "python", "torch", "numpy", "pandas"} <= set(header["versions"])
    assert header["machine"]["cores"] == os.cpu_count() and header["created"].endswith("+00:00")
