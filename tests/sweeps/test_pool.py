"""Worker processes as a user meets them: scripts, Ctrl-C, and a sweep that is killed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from normlab.data import Random
from normlab.sweeps import grid, pool, read_run, sweep, workers
from normlab.sweeps.cells import run_cell

SLOW = """
import dataclasses, time
from normlab.data import Random

@dataclasses.dataclass(frozen=True)
class Slow(Random):
    def draw(self, seed):
        time.sleep(0.15)
        return super().draw(seed)
"""

CALL = """
import normlab as nl
from slow_data import Slow

def main():
    specs = nl.grid(depth=[1, 2], width=8)
    nl.sweep(specs, seeds=range(6), data=Slow(2, 8), out={out!r}, jobs=2)
"""
GUARDED = CALL + "if __name__ == '__main__':\n    main()\n"


@pytest.fixture
def script(tmp_path):
    """Start a script in a process group of its own, as a terminal does."""
    started = []

    def start(text):
        path = tmp_path / "script.py"
        (tmp_path / "slow_data.py").write_text(SLOW)
        path.write_text(text.format(out=str(tmp_path / "run")))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, str(path)], start_new_session=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()


def _wait_for(condition, seconds=180.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def _has_lines(path, count):
    return lambda: path.exists() and path.read_bytes().count(b"\n") >= count


def _is_gone(group):
    alive = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return not alive


def test_a_script_without_a_main_guard_gets_a_sentence(script):
    _, errors = script(CALL + "main()\n").communicate(timeout=120)
    assert errors.count("Traceback") == 1
    assert errors.strip().splitlines()[-1].startswith("normlab.errors.RunError: a sweep was started again")
    assert 'put the call under `if __name__ == "__main__":`' in errors


def test_ctrl_c_stops_everything_at_once_and_quietly(script, tmp_path):
    process = script(GUARDED)
    _wait_for(_has_lines(tmp_path / "run" / "cells.jsonl", 1))
    os.killpg(process.pid, signal.SIGINT)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1 and errors.strip().endswith("KeyboardInterrupt")
    assert time.monotonic() - begin < 20
    _wait_for(lambda: _is_gone(process.pid), 20)
    run = read_run(tmp_path / "run")
    assert len(run.ok) >= 1 and run.unfinished == 12 - len(run.ok)


def test_ctrl_c_while_workers_import_is_quiet_too(script, tmp_path):
    process = script(GUARDED)
    _wait_for((tmp_path / "run" / "run.json").exists)
    _wait_for(lambda: len(psutil.Process(process.pid).children()) >= 2)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT and errors.count("Traceback") == 1
    _wait_for(lambda: _is_gone(process.pid), 20)


def test_workers_leave_with_a_sweep_that_is_killed_and_the_next_goes_on(script, tmp_path, monkeypatch):
    process = script(GUARDED)
    _wait_for(_has_lines(tmp_path / "run" / "cells.jsonl", 2))
    process.kill()
    process.communicate()
    _wait_for(lambda: _is_gone(process.pid), 20)
    done = len(read_run(tmp_path / "run").ok)
    ran = []
    monkeypatch.setattr(workers, "run_cell", lambda cell: ran.append(cell) or run_cell(cell))
    sweep(grid(depth=[1, 2], width=8), seeds=range(6), data=Random(2, 8), out=tmp_path / "run", jobs=1)
    assert 2 <= done <= len(read_run(tmp_path / "run").ok) == 12
    assert len(ran) == 12 - done


def test_an_interrupt_while_a_process_starts_is_held_back_and_not_lost():
    reached = []
    with pytest.raises(KeyboardInterrupt), pool._interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        reached.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, set()))
    assert reached == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
