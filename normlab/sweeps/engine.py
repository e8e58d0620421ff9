"""Running tasks: here, in worker processes that may die, or on any executor.

Every cell comes back exactly once, whatever happens to the workers. A pool that loses a worker fails
everything that was submitted, and stops its other workers; so it is opened again, cells that were not
marked as started are simply submitted again, and those that were are suspects: each runs alone, and one
that loses its worker a second time has crashed.
"""

import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from normlab.errors import RunError
from normlab.sweeps.pool import check_guarded, local_pool, submit
from normlab.sweeps.records import SweepWarning, record_of
from normlab.sweeps.workers import Finished, Task, UnregisteredError, describe_error, marker_of, work

#: Pools that break one after the other before any cell has started: workers cannot live here.
MAXIMAL_FALSE_STARTS: Final = 3

#: Tasks handed to an executor that does not say how many workers it has.
UNKNOWN_WORKERS: Final = 256

#: Finished cells, in the order in which they finish; closing it stops what runs.
Finishing: TypeAlias = Generator[Finished, None, None]

OpenPool: TypeAlias = Callable[[int], contextlib.AbstractContextManager[Executor]]


def inline(tasks: Iterable[Task]) -> Finishing:
    """Run tasks one after the other in this process."""
    for task in tasks:
        yield work(task)


def pooled(tasks: Iterable[Task], folder: Path, workers: int, open_pool: OpenPool = local_pool) -> Finishing:
    """Run tasks in worker processes, in the given order, and recover from workers that die.

    Args:
        tasks: what to run; each has the folder that its worker writes to.
        folder: of the run.
        workers: number of processes.
        open_pool: opens that many.

    Raises:
        RunError: the folder cannot be written, or workers cannot live here.
    """
    waiting, strange = deque(tasks), list[Task]()
    false_starts = 0
    while waiting:
        lost: list[Task] = []
        with open_pool(min(workers, len(waiting))) as pool:
            for task, future in _completed(pool, waiting, folder, 2 * workers):
                if _is_broken(future):
                    lost.append(task)
                    continue
                false_starts = 0
                if (finished := _outcome(task, future)) is None:
                    strange.append(task)
                else:
                    yield finished
        check_guarded(folder)
        suspects = [task for task in lost if _was_started(task)]
        waiting.extendleft(task for task in reversed(lost) if task not in suspects)
        false_starts += bool(waiting) and not suspects
        if false_starts >= MAXIMAL_FALSE_STARTS:
            raise RunError(
                f"worker processes die before they run a cell ({false_starts} times): free some memory, move a data "
                f"source of your own to a module that can be imported, or pass jobs=1 to run in this process"
            )
        yield from _alone(suspects, folder, open_pool, strange)
    yield from _here(strange)


def borrowed(
    tasks: Iterable[Task],
    folder: Path,
    executor: Executor,
    workers: int | None,
    *,
    local_workers: int,
    cells: Path,
    open_pool: OpenPool = local_pool,
) -> Finishing:
    """Run tasks on an executor of the caller's, which sends the cells' files back.

    If it loses a worker it cannot be opened again from here: what is left then runs in local workers.

    Args:
        tasks: what to run, without a folder to write to: the executor's machines may not have it.
        folder: of the run.
        executor: the caller's; it is not shut down.
        workers: how many it has, where the caller knows.
        local_workers: number of processes here, should it break.
        cells: folder that local workers write to.
        open_pool: opens local workers.

    Raises:
        RunError: the executor was shut down, or the folder cannot be written.
    """
    waiting, lost, strange = deque(tasks), list[Task](), list[Task]()
    window = 2 * (workers or getattr(executor, "_max_workers", None) or UNKNOWN_WORKERS)
    for task, future in _completed(executor, waiting, folder, window):
        if _is_broken(future):
            lost.append(task)
        elif (finished := _outcome(task, future)) is None:
            strange.append(task)
        else:
            yield finished
    check_guarded(folder)
    left = [replace(task, cells=str(cells)) for task in (*lost, *waiting)]
    if left:
        warnings.warn(
            f"the executor lost a worker and takes no more tasks: the {len(left)} cells left run in local workers",
            SweepWarning,
            stacklevel=2,
        )
        yield from pooled(left, folder, local_workers, open_pool)
    yield from _here(strange)


def _completed(
    pool: Executor, waiting: "deque[Task]", folder: Path, window: int
) -> "Iterator[tuple[Task, Future[Finished]]]":
    """Submit from ``waiting`` while ``pool`` lives, at most ``window`` at a time; yield what comes back."""
    running: dict[Future[Finished], Task] = {}
    broken = False
    try:
        while running or (waiting and not broken):
            while waiting and not broken and len(running) < window:
                try:
                    running[submit(pool, waiting[0], folder)] = waiting[0]
                    waiting.popleft()
                except BrokenExecutor:
                    broken = True
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                broken = broken or _is_broken(future)
                yield running.pop(future), future
    finally:
        for future in running:
            future.cancel()


def _is_broken(future: "Future[Finished]") -> bool:
    return future.cancelled() or isinstance(future.exception(), BrokenExecutor | CancelledError)


def _outcome(task: Task, future: "Future[Finished]") -> Finished | None:
    """Return what came of a task, or ``None`` where the worker did not know the spec's names."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, UnregisteredError):
        return None
    if isinstance(error, RunError | KeyboardInterrupt):
        raise error
    # Out of memory while packing, or what an executor of the caller's says of a worker that it lost.
    return Finished(record_of(task.cell, task.id, "failed", error=describe_error(error)))


def _was_started(task: Task) -> bool:
    return task.cells is not None and marker_of(task.cells, task.id).exists()


def _alone(suspects: list[Task], folder: Path, open_pool: OpenPool, strange: list[Task]) -> Finishing:
    """Run suspects one at a time: whoever runs when the worker dies has killed it."""
    waiting = deque(suspects)
    while waiting:
        with open_pool(1) as pool:
            for task, future in _completed(pool, waiting, folder, 1):
                if _is_broken(future):
                    yield _crashed(task)
                elif (finished := _outcome(task, future)) is None:
                    strange.append(task)
                else:
                    yield finished


def _crashed(task: Task) -> Finished:
    if task.cells is not None:
        marker_of(task.cells, task.id).unlink(missing_ok=True)
    error = "its worker process was killed twice, the second time while it ran alone (out of memory?)"
    return Finished(record_of(task.cell, task.id, "crashed", error=error))


def _here(tasks: list[Task]) -> Finishing:
    """Run what workers cannot know, and say so."""
    if not tasks:
        return
    warnings.warn(
        f"{len(tasks)} cells run in this process, one after the other, because worker processes do not know their "
        f"norm, placement, init or activation: put the registration in a module and name it in plugins",
        SweepWarning,
        stacklevel=2,
    )
    yield from inline(tasks)
