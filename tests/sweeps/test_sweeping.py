"""The whole way, in real worker processes and on other executors."""

import dataclasses
import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from normlab import table
from normlab.data import Random, Text
from normlab.errors import DataError, RunError, SpecError, UnknownNameError
from normlab.norms import NORMS
from normlab.spec import ModelSpec
from normlab.sweeps import cells, grid, read_run, sweep
from normlab.sweeps.records import SweepWarning

DATA = Random(2, 8)

PLUGIN = """
import dataclasses, multiprocessing, os, signal
from normlab.norms import NORMS, register_norm

def deadly(width, *, eps=1e-5):
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return NORMS["layernorm"].build(width, eps=eps)

register_norm(dataclasses.replace(NORMS["rmsnorm"], name="plugged"))
register_norm(dataclasses.replace(NORMS["layernorm"], name="deadly", build=deadly))
"""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a sweep in real workers did."""

    folder: Path
    rows: object
    progress: list
    warnings: list


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """A module that registers norms, one of which kills the worker; and a norm that only this process knows."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "sweep_test_plugin.py").write_text(PLUGIN)
    before = dict(NORMS._entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        import sweep_test_plugin  # noqa: F401

        NORMS.register(dataclasses.replace(NORMS["rmsnorm"], name="of-a-notebook"))
        yield "sweep_test_plugin"
    NORMS._entries.clear()
    NORMS._entries.update(before)


@pytest.fixture(scope="module")
def seen(plugin, tmp_path_factory):
    """Two workers, of which one is killed again and again, with a norm that they do not know."""
    folder = tmp_path_factory.mktemp("runs") / "x"
    specs = (
        *grid(depth=[1, 2], width=8, norm=["plugged", "of-a-notebook"]),
        ModelSpec(depth=1, width=8, norm="deadly"),
    )
    progress = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = sweep(specs, seeds=[3], data=DATA, out=folder, jobs=2, plugins=[plugin], progress=progress.append)
    return Seen(folder, rows, progress, [str(warning.message) for warning in caught])


def test_killed_workers_cost_their_own_cells_alone(seen):
    run = read_run(seen.folder)
    assert {record.label.split()[1]: record.status for record in run.cells} == {
        "plugged": "ok",
        "of-a-notebook": "ok",
        "deadly": "crashed",
    }
    assert (len(run.ok), len(run.failed), run.unfinished) == (4, 1, 0)
    assert set(seen.rows["norm"]) == {"plugged", "of-a-notebook"}


def test_what_workers_do_not_know_runs_here_and_says_so(seen):
    assert any(message.startswith("2 cells run in this process") for message in seen.warnings)
    assert any(message.startswith("1 of 5 cells failed: pre deadly") for message in seen.warnings)


def test_progress_counts_every_cell_once(seen):
    assert [step.done for step in seen.progress] == list(range(1, 6))
    assert {step.total for step in seen.progress} == {5} and seen.progress[-1].failed == 1
    assert seen.progress[-1].remaining_seconds == pytest.approx(0, abs=1e-6)
    assert all(a.elapsed_seconds <= b.elapsed_seconds for a, b in zip(seen.progress, seen.progress[1:], strict=False))


@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_the_same_cells_give_the_same_bytes_whatever_runs_them(seen, plugin, tmp_path, engine):
    specs = grid(norm=["of-a-notebook", "plugged"], depth=[2, 1], width=8)
    threads = torch.get_num_threads()
    context = multiprocessing.get_context("fork")
    executors = {
        "inline": lambda: None,
        "threads": lambda: ThreadPoolExecutor(2),
        "processes": lambda: ProcessPoolExecutor(1, mp_context=context),
    }
    executor = executors[engine]()
    sweep(specs, seeds=[3], data=DATA, out=tmp_path, jobs=1, executor=executor)
    if executor is not None:
        executor.shutdown()
    assert (tmp_path / "results.csv.gz").read_bytes() == (seen.folder / "results.csv.gz").read_bytes()
    assert torch.get_num_threads() == threads


def test_without_a_folder_the_table_is_all_that_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = sweep(ModelSpec(depth=1, width=8), seeds=[7], jobs=1, data=DATA)
    assert rows["model_seed"].unique().tolist() == [7]
    assert list(tmp_path.iterdir()) == []


def test_the_default_is_the_documentation_of_python():
    rows = sweep(ModelSpec(depth=1, width=8), seeds=[0])
    assert (rows["data"][0], rows["batch"][0], rows["tokens"][0]) == ("text:pydoc", 4, 128)


def test_sites_and_quantities_reach_the_recorder(monkeypatch):
    asked = []
    record = cells.record

    def watched(model, **options):
        asked.append(options)
        return record(model, **options)

    monkeypatch.setattr(cells, "record", watched)
    sweep(
        ModelSpec(depth=1, width=8), seeds=[0], data=DATA, sites=["input", "stream"], quantities=["rms", "mean_square"]
    )
    assert asked == [{"sites": ("stream", "input"), "quantities": ("mean_square", "rms")}]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"seeds": []}, SpecError, "at least one seed"),
        ({"seeds": [-1]}, SpecError, "a seed is -1"),
        ({"dtype": "float31"}, SpecError, "dtype is 'float31'"),
        ({"jobs": 0}, RunError, "jobs is 0"),
        ({"plugins": ["no_such_module"]}, RunError, "plugin 'no_such_module' cannot be imported"),
        ({"sites": ["streams"]}, UnknownNameError, "did you mean 'stream'"),
        ({"quantities": ["rmss"]}, UnknownNameError, "did you mean 'rms'"),
        ({"data": Random(2, 8, 300)}, SpecError, "vocab is 256 and the data has tokens up to 299"),
        ({"data": Random(2, 2000)}, SpecError, "context is 1024 and a batch has 2000 tokens"),
        ({"data": Text(2, 8, os.devnull)}, DataError, "is empty"),
        ({"data": Text(2, 8, "/no/such/file")}, DataError, "cannot be read"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_written(tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        sweep(ModelSpec(depth=1, width=8), out=tmp_path / "run", **{"data": DATA} | options)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_cell_does_not_stop_an_inline_sweep(monkeypatch):
    from normlab.sweeps import workers

    def picky(cell):
        if cell.seed == 0:
            raise ValueError("no seed 0")
        return cells.run_cell(cell)

    monkeypatch.setattr(workers, "run_cell", picky)
    with pytest.warns(SweepWarning, match="1 of 2 cells failed: pre layernorm depth 1 width 8 seed 0: ValueError"):
        rows = sweep(ModelSpec(depth=1, width=8), seeds=range(2), data=DATA, jobs=1)
    assert rows["model_seed"].unique().tolist() == [1]


def test_nothing_is_ever_printed(capfd, tmp_path):
    sweep(ModelSpec(depth=1, width=8), seeds=range(2), data=DATA, jobs=1, out=tmp_path)
    assert capfd.readouterr() == ("", "")
    assert table.read_csv(tmp_path / "results.csv.gz")["status"].isin(table_statuses()).all()


def table_statuses():
    """Statuses that rows of a healthy model can have."""
    return ["ok", "exact-zero"]


def test_a_thousand_blocks_are_measured():
    spec = ModelSpec(depth=1000, width=64, attention="none")
    options = {"sites": ["stream"], "quantities": ["mean_square"]}
    rows = sweep(spec, seeds=[0], data=Random(1, 4), **options)
    stream = rows[(rows["site"] == "stream") & (rows["sublayer"] == "mlp")]
    assert stream["layer"].tolist() == list(range(1, 1001))
