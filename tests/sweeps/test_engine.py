"""Every cell comes back exactly once, whatever happens to the workers."""

import contextlib
import os
import signal
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from normlab import table
from normlab.errors import RunError
from normlab.sweeps import engine, workers
from normlab.sweeps.records import SweepWarning


def _quick(cell):
    return table.from_rows([{"quantity": "loss", "value": float(cell.seed)}])


@pytest.fixture
def run(monkeypatch, tasks, tmp_path, fork_pool):
    """Run the tasks in two workers with another function in place of a cell's; return the records by seed."""

    def with_function(function, **options):
        monkeypatch.setattr(workers, "run_cell", function)
        pooled = engine.pooled(tasks, tmp_path, 2, options.get("open_pool", fork_pool))
        records = [finished.record for finished in pooled]
        assert sorted(record.id for record in records) == sorted(task.id for task in tasks)
        assert not list((tmp_path / "cells").glob("*.started"))
        return {record.model_seed: record for record in records}

    return with_function


def test_inline_runs_in_the_given_order(monkeypatch, tasks):
    monkeypatch.setattr(workers, "run_cell", _quick)
    assert [finished.record.model_seed for finished in engine.inline(tasks)] == [0, 1, 2, 3, 4, 5]


def test_a_cell_that_always_kills_its_worker_crashes_alone(run):
    def deadly(cell):
        if cell.seed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        return _quick(cell)

    records = run(deadly)
    assert {seed: record.status for seed, record in records.items()} == {
        seed: "crashed" if seed == 2 else "ok" for seed in range(6)
    }
    assert "killed twice" in records[2].error


def test_a_worker_that_is_killed_once_loses_nothing(run, tmp_path):
    def unlucky(cell):
        with contextlib.suppress(FileExistsError):
            if cell.seed == 1:
                (tmp_path / "once").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return _quick(cell)

    assert {record.status for record in run(unlucky).values()} == {"ok"}


def test_exceptions_stay_with_their_cells(run):
    def picky(cell):
        if cell.seed % 2:
            raise MemoryError("too large")
        return _quick(cell)

    records = run(picky)
    assert [records[seed].status for seed in range(6)] == ["ok", "failed"] * 3
    assert records[1].error.startswith("MemoryError: too large")


def test_workers_that_cannot_live_are_one_sentence(run, fork_pool):
    @contextlib.contextmanager
    def stillborn(count):
        with fork_pool(count) as pool:
            pool._initializer, pool._initargs = os._exit, (1,)
            yield pool

    with pytest.raises(RunError, match="worker processes die before they run a cell"):
        run(_quick, open_pool=stillborn)


def test_no_more_is_submitted_than_workers_can_take(monkeypatch, tasks, tmp_path):
    monkeypatch.setattr(workers, "run_cell", _quick)
    waiting = engine.deque(tasks)
    with ThreadPoolExecutor(1) as pool:
        completed = engine._completed(pool, waiting, tmp_path, 2)
        next(completed)
        assert len(waiting) == len(tasks) - 2
        completed.close()


def test_what_a_worker_does_not_know_runs_here_with_a_warning(monkeypatch, tasks, tmp_path, fork_pool):
    here = os.getpid()

    def strange(task):
        if os.getpid() != here and task.cell.seed < 2:
            raise workers.UnregisteredError("a worker process does not know norm 'mine'")

    monkeypatch.setattr(workers, "run_cell", _quick)
    monkeypatch.setattr(workers, "_check_names", strange)
    with pytest.warns(SweepWarning, match="2 cells run in this process.*name it in plugins"):
        records = [finished.record for finished in engine.pooled(tasks, tmp_path, 2, fork_pool)]
    assert {record.status for record in records} == {"ok"} and len(records) == 6


def _borrow(tasks, tmp_path, executor, open_pool):
    return list(
        engine.borrowed(tasks, tmp_path, executor, None, local_workers=2, cells=tmp_path / "cells", open_pool=open_pool)
    )


def test_an_executor_that_breaks_is_replaced_by_local_workers(monkeypatch, tasks, tmp_path, fork_pool):
    def deadly(cell):
        if cell.seed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return _quick(cell)

    monkeypatch.setattr(workers, "run_cell", deadly)
    with fork_pool(1) as pool, pytest.warns(SweepWarning, match="the executor lost a worker"):
        records = [finished.record for finished in _borrow(tasks, tmp_path, pool, fork_pool)]
    assert sorted((record.model_seed, record.status) for record in records) == [
        (seed, "crashed" if seed == 2 else "ok") for seed in range(6)
    ]


def test_an_executor_that_was_shut_down_is_one_sentence(tasks, tmp_path, fork_pool):
    for executor in (ThreadPoolExecutor(1), ProcessPoolExecutor(1)):
        executor.shutdown()
        with pytest.raises(RunError, match="the executor was shut down"):
            _borrow(tasks, tmp_path, executor, fork_pool)


def test_an_executors_own_errors_are_failures_of_the_cell(tasks, tmp_path, fork_pool):
    class Remote(ThreadPoolExecutor):
        def submit(self, *_):
            future = Future()
            future.set_exception(ConnectionError("the scheduler lost its worker"))
            return future

    records = [finished.record for finished in _borrow(tasks, tmp_path, Remote(1), fork_pool)]
    assert {record.error for record in records} == {"ConnectionError: the scheduler lost its worker"}
