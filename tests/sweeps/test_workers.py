"""One task in a worker: its file, its record, and what it does with errors."""

import dataclasses
import errno

import pytest

from normlab import table
from normlab.errors import RunError
from normlab.sweeps import workers
from normlab.sweeps.cells import run_cell
from normlab.sweeps.definitions import definitions
from normlab.sweeps.workers import UnregisteredError, describe_error, import_plugins, marker_of, work


def _raising(error):
    def run(_):
        raise error

    return run


def test_a_worker_writes_the_table_and_sends_a_record(tasks, tmp_path):
    finished = work(tasks[0])
    written = table.read_csv(tmp_path / "cells" / f"{tasks[0].id}.csv.gz")
    assert written.equals(run_cell(tasks[0].cell))
    assert finished.content is None
    assert (finished.record.status, finished.record.rows) == ("ok", len(written))
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [f"{tasks[0].id}.csv.gz"]


def test_without_a_folder_the_content_comes_back(tasks, tmp_path):
    work(tasks[0])
    sent = work(dataclasses.replace(tasks[0], cells=None)).content
    assert sent == (tmp_path / "cells" / f"{tasks[0].id}.csv.gz").read_bytes()


@pytest.mark.parametrize("error", [ValueError("a\nb"), MemoryError(), SystemExit(3), OSError(errno.ENOSPC, "full")])
def test_an_exception_of_the_cell_is_a_record(tasks, monkeypatch, error):
    monkeypatch.setattr(workers, "run_cell", _raising(error))
    record = work(tasks[0]).record
    assert record.status == "failed"
    assert record.error.startswith(type(error).__name__) and "\n" not in record.error
    assert not marker_of(tasks[0].cells, tasks[0].id).exists()


def test_a_cell_is_marked_while_it_runs(tasks, monkeypatch):
    seen = []

    def run(cell):
        seen.append(marker_of(tasks[0].cells, tasks[0].id).exists())
        return run_cell(cell)

    monkeypatch.setattr(workers, "run_cell", run)
    work(tasks[0])
    assert seen == [True]


def test_ctrl_c_is_no_failure_of_the_cell(tasks, monkeypatch):
    monkeypatch.setattr(workers, "run_cell", _raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        work(tasks[0])


def test_a_folder_that_cannot_be_written_stops_the_sweep(tasks, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        work(dataclasses.replace(tasks[0], cells=str(tmp_path / "file" / "cells")))


def test_names_must_mean_the_same_here(tasks):
    meaning = definitions(tasks[0].cell.spec)
    work(dataclasses.replace(tasks[0], meaning=meaning))
    with pytest.raises(UnregisteredError, match="norm 'layernorm'"):
        work(dataclasses.replace(tasks[0], meaning=meaning | {"norm 'layernorm'": "another"}))


def test_a_text_that_changes_while_the_sweep_runs_is_a_failure(tasks):
    assert "text changed" in work(dataclasses.replace(tasks[0], id="0")).record.error


def test_errors_are_one_short_line_with_their_place():
    try:
        raise ValueError("x" * 1000)
    except ValueError as error:
        text = describe_error(error)
    assert text.startswith("ValueError: xxx") and len(text) < 500 and "(test_workers.py:" in text


def test_a_plugin_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_plugin.py").write_text("1 / 0")
    with pytest.raises(RunError, match="'broken_plugin' cannot be imported .ZeroDivisionError"):
        import_plugins(["broken_plugin"])
    with pytest.raises(RunError, match="'no_such_plugin' cannot be imported"):
        import_plugins(["no_such_plugin"])
