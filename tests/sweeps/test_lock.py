"""One process at a time writes a run folder."""

import contextlib
import multiprocessing
import subprocess
import sys
import threading

import pytest

from normlab.errors import RunError
from normlab.sweeps.lock import NAME, locked


def test_a_second_holder_is_told_who_has_it(tmp_path):
    with locked(tmp_path), pytest.raises(RunError, match=r"is being written by process \d+"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    assert not (tmp_path / NAME).exists()


def _hold(folder):
    with locked(folder):
        pass


def test_another_process_is_kept_out(tmp_path):
    context = multiprocessing.get_context("fork")
    codes = []
    for holder in (locked(tmp_path), contextlib.nullcontext()):
        other = context.Process(target=_hold, args=(tmp_path,))
        with holder:
            other.start()
            other.join()
        codes.append(other.exitcode)
    assert codes == [1, 0]


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    (tmp_path / NAME).write_text(dead.stdout)
    with locked(tmp_path):
        pass


def test_one_of_many_threads_holds_it(tmp_path):
    inside, most = [], []

    def hold():
        for _ in range(200):
            try:
                with locked(tmp_path):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
            except RunError:
                pass

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
