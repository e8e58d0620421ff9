"""Exit codes other than 0: 1 it failed, 2 usage (from click), 3 some cells failed, 130 interrupted."""

import errno
import warnings
from typing import IO, Any, TextIO

import click

from normlab.errors import NormlabError, SpecError, UnknownNameError


class Failure(click.ClickException):
    """The end of a command that did not do all that was asked, in one sentence for the user."""

    exit_code = 1
    heading = "Error"

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the sentence to the standard error."""
        click.echo(f"{self.heading}: {self.message}", file=file, err=file is None)


class CellsFailed(Failure):
    """Some cells of a sweep have no result; the others are saved."""

    exit_code = 3


class Interrupted(Failure):
    """The user stopped the command; what was measured is saved."""

    exit_code = 130
    heading = "Interrupted"


class Command(click.Command):
    """A command that turns what the library raises into one sentence and the right exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            click.ClickException: the command failed in a way that the user can act on.
        """
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _say
                return super().invoke(ctx)
        except (SpecError, UnknownNameError) as error:
            raise click.UsageError(str(error), ctx) from error
        except NormlabError as error:
            raise Failure(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # click ends quietly when the reader of a pipe has gone
            raise Failure(sentence(error)) from error
        except KeyboardInterrupt as error:
            raise Interrupted("nothing was written; run the same command again") from error


def _say(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as a sentence, without the line of code that gave it."""
    click.echo(f"Warning: {message}", err=True)


def sentence(error: OSError) -> str:
    """Say what the operating system refused, and what to do."""
    path = f"{error.filename}: " if error.filename is not None else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"{path}the disk is full: free some space and run the same command again; what was saved is kept"
        case errno.EACCES | errno.EPERM | errno.EROFS | errno.ENOTDIR | errno.EEXIST:
            return f"{path}cannot be written or read ({error.strerror}): choose another place with --out"
        case _:
            return f"{path}{error.strerror or error}: check the path, then run the same command again"
