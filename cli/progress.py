"""The progress of a sweep: a bar with the time left on a terminal, a plain line now and then elsewhere."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from normlab.cli.output import counted

if TYPE_CHECKING:
    from normlab.sweeps import Progress

#: Seconds between two lines where there is no terminal.
PATIENCE = 10.0


class Watch:
    """Remembers how far the sweep is, and passes each progress on to whatever shows it.

    Attributes:
        done: cells that are finished, failed ones included.
        total: cells asked for; 0 until the sweep has said.
        failed: cells without a result.

    Args:
        show: shows a progress.
        workers: how many cells run at a time: until as many are finished, the rate is that of the first
            workers alone, and no time left is shown.
    """

    def __init__(self, show: Callable[["Progress"], None], workers: int = 1) -> None:
        self.done = self.total = self.failed = self._heard = 0
        self._show, self._workers = show, workers

    def __call__(self, progress: "Progress") -> None:
        """Take note of ``progress`` and show it."""
        self.done, self.total, self.failed = progress.done, progress.total, progress.failed
        self._heard += 1
        self._show(progress if self._heard >= self._workers else replace(progress, remaining_seconds=None))


@contextmanager
def watch(*, quiet: bool, jobs: int | None = None) -> Iterator[Watch]:
    """Return the callback that a sweep with these jobs calls; what it shows goes to the standard error."""
    workers = jobs or os.cpu_count() or 1
    if quiet:
        yield Watch(lambda progress: None)
    elif sys.stderr.isatty():
        with _bar() as show:
            yield Watch(show, workers)
    else:
        yield Watch(_lines(), workers)


@contextmanager
def _bar() -> Iterator[Callable[["Progress"], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    from normlab.cli.output import console

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bars(*columns, console=console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting the workers", total=None)
        yield lambda progress: bars.update(
            task, completed=progress.done, total=progress.total, description=_state(progress)
        )


def computing(*, quiet: bool, patience: float = PATIENCE) -> Callable[[int, int, str], None]:
    """Return the callback of the computations that come before a sweep: a line now and then, and one at the end."""
    said = time.monotonic()

    def show(done: int, total: int, name: str) -> None:
        nonlocal said
        if not quiet and (done == total or time.monotonic() - said >= patience):
            said = time.monotonic()
            click.echo(f"{done} of {counted(total, 'computation')}, the last one {name}", err=True)

    return show


def _lines(patience: float = PATIENCE) -> Callable[["Progress"], None]:
    said = time.monotonic()

    def show(progress: "Progress") -> None:
        nonlocal said
        if progress.done == progress.total or time.monotonic() - said >= patience:
            said = time.monotonic()
            click.echo(f"{progress.done} of {counted(progress.total, 'cell')}, {_state(progress)}", err=True)

    return show


def _state(progress: "Progress") -> str:
    failed = f"{progress.failed} failed, " if progress.failed else ""
    if progress.done == progress.total:
        return f"{failed}{duration(progress.elapsed_seconds)}"
    remaining = progress.remaining_seconds
    return failed + (f"about {duration(remaining)} left" if remaining is not None else "no estimate yet")


def duration(seconds: float) -> str:
    """Return a time as people say it: ``48 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
