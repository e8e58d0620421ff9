"""A group whose commands are imported when they are named."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from normlab.errors import suggest


class LazyGroup(click.Group):
    """A click group that knows where its commands are.

    Args:
        commands_at: for each command its ``module:attribute``, in the order in which help lists them.
    """

    def __init__(self, *args: Any, commands_at: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands_at = dict(commands_at)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order given."""
        return list(self._commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command ``cmd_name``; ``None`` if there is none."""
        if cmd_name not in self._commands_at:
            return None
        module, attribute = self._commands_at[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` names; suggest the nearest where there is none.

        Raises:
            click.UsageError: there is no such command.
        """
        name = args[0]
        if name not in self._commands_at and not name.startswith("-"):
            allowed = ", ".join(self._commands_at)
            ctx.fail(f"no command {name!r}: the commands are {allowed}{suggest(name, self._commands_at)}")
        return super().resolve_command(ctx, args)
