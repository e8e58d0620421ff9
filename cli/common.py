"""The options that every command takes."""

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from normlab.cli.config import read_config
from normlab.cli.output import Output


def common(*, out: str, seed: str = "", options: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--out``, ``--seed``, ``--json``, ``--quiet``, ``--config`` and ``--plugin``.

    The command receives ``out``, ``seed``, ``plugin`` and, from the two switches, one ``output``.

    Args:
        out: help of ``--out``.
        seed: help of ``--seed``; a command in which nothing is random takes one too, and does not show it.
        options: whether the command has options of its own, which a file can give; otherwise ``--config`` is not shown.
    """
    given = (
        click.option("--out", type=click.Path(path_type=Path), help=out),
        click.option("--seed", type=click.IntRange(min=0), metavar="N", default=0, help=seed, hidden=not seed),
        click.option("--json", "as_json", is_flag=True, help="JSON on the standard output, all else on the error."),
        click.option("--quiet", is_flag=True, help="Say nothing but results and errors."),
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            is_eager=True,
            expose_value=False,
            callback=read_config,
            hidden=not options,
            help="TOML file with options, one table a command; flags and environment variables win.",
        ),
        click.option(
            "--plugin",
            multiple=True,
            metavar="MODULE",
            callback=_import_plugins,
            help="Import MODULE, which registers norms, placements, ... of your own. Repeatable.",
        ),
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*, as_json: bool, quiet: bool, **kwargs: Any) -> None:
            function(output=Output(as_json, quiet), **kwargs)

        for option in reversed(given):
            command = option(command)
        return command

    return decorate


def folder_of(run: Path) -> Path:
    """Return the folder of a run, which may also be named by its table's file."""
    return run if run.is_dir() else run.parent


def _import_plugins(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    # A module beside the user's own files; last, so that it cannot stand in front of an installed one.
    if names and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise click.BadParameter(
                f"{name!r} cannot be imported ({error}): give a module's dotted name", ctx, param
            ) from error
    return names
