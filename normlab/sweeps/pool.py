"""Worker processes that this sweep owns: started quietly, and stopped at once when it ends early."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Final

from normlab.errors import RunError
from normlab.sweeps.workers import Finished, Task, start_worker, work

#: How long a worker that was told to stop may take before it is killed.
GRACE_SECONDS: Final = 2.0

_FOLDER_VARIABLE: Final = "NORMLAB_SWEEP_FOLDER"
_UNGUARDED: Final = ".unguarded"

_MAIN_GUARD: Final = (
    "a sweep was started again while its worker processes imported the script: "
    'put the call under `if __name__ == "__main__":`, or pass jobs=1'
)

# One thread a worker, in every library that would start more by itself.
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@contextlib.contextmanager
def local_pool(workers: int) -> Iterator[Executor]:
    """Open worker processes that import everything anew (spawn), and close them.

    If the block is left by an exception, Ctrl-C included, the workers are stopped at once.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker)
    try:
        yield pool
    except BaseException:
        _stop(pool)
        raise
    pool.shutdown()


def _stop(pool: ProcessPoolExecutor) -> None:
    # The executor has no public way to end what runs before Python 3.14.
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(GRACE_SECONDS)
        if process.is_alive():
            process.kill()


def submit(pool: Executor, task: Task, folder: Path) -> "Future[Finished]":
    """Hand a task to an executor.

    A pool starts its processes here. They inherit one thread a library, a blocked Ctrl-C (or each would
    print a traceback while it imports), and where to say that the script has no main guard.

    Raises:
        BrokenExecutor: the executor has lost a worker.
        RunError: the executor was shut down.
    """
    environment = dict.fromkeys(_THREADS, "1") | {_FOLDER_VARIABLE: f"{os.getpid()}:{folder.absolute()}"}
    with _environment(environment), _interrupts_held():
        try:
            return pool.submit(work, task)
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise RunError("the executor was shut down: give one that still takes tasks") from error
            raise


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back for a moment; unlike ignoring it, this loses none.

    The mask is for the processes that start here, which inherit it. It does not keep the signal from other
    threads of this process, from where Python would interrupt the main one half way through a start.
    """
    handler = signal.getsignal(signal.SIGINT)
    here = callable(handler) and threading.current_thread() is threading.main_thread()
    seen: list[FrameType | None] = []
    if here:
        signal.signal(signal.SIGINT, lambda _number, frame: seen.append(frame))
    masks = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else set()
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if here:
            signal.signal(signal.SIGINT, handler)
        if seen and callable(handler):
            handler(signal.SIGINT, seen[0])


def refuse_unguarded() -> None:
    """Stop a sweep that starts because a worker imports a script without a main guard.

    A worker of a sweep says so to its sweep and leaves without a traceback.

    Raises:
        RunError: it is a worker of something else.
    """
    if not getattr(multiprocessing.current_process(), "_inheriting", False):
        return
    parent, _, folder = os.environ.get(_FOLDER_VARIABLE, "").partition(":")
    if folder and parent == str(os.getppid()):
        with contextlib.suppress(OSError):
            (Path(folder) / _UNGUARDED).touch()
        os._exit(1)
    raise RunError(_MAIN_GUARD)


def check_guarded(folder: Path) -> None:
    """Raise what a worker had to say about the script.

    Raises:
        RunError: the script has no main guard.
    """
    marker = folder / _UNGUARDED
    if marker.exists():
        marker.unlink(missing_ok=True)
        raise RunError(_MAIN_GUARD)
