"""What a command says: results on the standard output, everything else on the standard error."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from normlab.cli.failures import Failure
from normlab.errors import counted as counted
from normlab.files import write_whole

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True)
class Output:
    """Where the words of a command go.

    Attributes:
        as_json: the standard output is for :meth:`machine` alone; results for people go to the standard error.
        quiet: only results and errors are said.
    """

    as_json: bool = False
    quiet: bool = False

    def note(self, text: str) -> None:
        """Say something in passing."""
        if not self.quiet:
            click.echo(text, err=True)

    def result(self, text: str) -> None:
        """Say what the command found."""
        if not (self.as_json and self.quiet):
            click.echo(text, err=self.as_json)

    def show(self, renderable: "RenderableType") -> None:
        """Show a table of what the command found."""
        if not (self.as_json and self.quiet):
            console(stderr=self.as_json).print(renderable)

    @property
    def width(self) -> int:
        """How many characters a line of results has room for."""
        return console(stderr=self.as_json).width

    def machine(self, value: object) -> None:
        """Write ``value`` as JSON, where JSON was asked for."""
        if self.as_json:
            click.echo(json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2))


#: What tells the folder of each command from those of others.
_MARKS: Final = {
    "run.json": "a sweep",
    "inspection.json": "an inspection",
    "comparison.json": "a comparison",
    "jacobian.csv.gz": "Jacobians",
}


def refuse_others(out: Path, mark: str) -> None:
    """Refuse a folder that holds what another command wrote than the one whose file is ``mark``.

    Raises:
        Failure: it does.
    """
    for name, what in _MARKS.items():
        if name != mark and (out / name).exists():
            raise Failure(f"{out} holds {what} ({name}): choose another place with --out")


def make_folder(output: Output, out: Path, mark: str) -> None:
    """Make the folder ``--out`` before anything is computed; what the same command left there is written again.

    Args:
        output: says so.
        out: the folder.
        mark: the file by which it is known as this command's.

    Raises:
        Failure: it holds what another command wrote.
        OSError: it cannot be made.
    """
    refuse_others(out, mark)
    out.mkdir(parents=True, exist_ok=True)
    if (out / mark).exists():
        output.note(f"{out} holds {_MARKS[mark]} already, which this one replaces.")


def console(*, stderr: bool) -> "Console":
    """Return a console as wide as its terminal or ``COLUMNS``, otherwise wide enough for tables."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    known = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(file=stream, highlight=False, width=None if known else 120)


def write_json(path: Path, value: object) -> None:
    """Write ``value`` to ``path`` as JSON, all of it or nothing."""
    write_whole(path, json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2) + "\n")
