"""Options from a TOML file: one table a command, ``[sweep]`` or ``[claims.judge]``."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from normlab.errors import suggest


def read_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Make the command's table in ``path`` the defaults of its options; flags and environment variables win.

    click takes unknown keys of its defaults in silence, so they are looked for here.

    Raises:
        click.BadParameter: the file is not TOML, or has a table or a key that names nothing.
    """
    if path is None:
        return
    try:
        tables: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read as TOML: {error}", ctx, param) from error
    for group, name in _steps(ctx):
        _check(tables, group.list_commands(ctx), f"table in {path}", ctx, param)
        tables = tables.get(name, {})
        if not isinstance(tables, Mapping):
            raise click.BadParameter(f"{name} in {path} is no table: write [{name}] above its options", ctx, param)
    names = _option_names(ctx.command)
    settings = {key.replace("-", "_"): value for key, value in tables.items()}
    _check(settings, names, f"option of {ctx.info_name} in {path}", ctx, param)
    ctx.default_map = {names[key].name or key: _as_given(names[key], value) for key, value in settings.items()}


def _steps(ctx: click.Context) -> list[tuple[click.Group, str]]:
    """The groups that lead to the command, outermost first, each with the name of the next step."""
    steps = []
    while ctx.parent is not None:
        assert isinstance(ctx.parent.command, click.Group)
        steps.append((ctx.parent.command, ctx.command.name or ""))
        ctx = ctx.parent
    return steps[::-1]


def _option_names(command: click.Command) -> dict[str, click.Parameter]:
    return {
        spelling.lstrip("-").replace("-", "_"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name != "config"
        for spelling in parameter.opts
        if spelling.startswith("--")
    }


def _check(given: Iterable[str], allowed: Iterable[str], what: str, ctx: click.Context, param: click.Parameter) -> None:
    allowed = list(allowed)
    for name in given:
        if name not in allowed:
            remedy = suggest(name, allowed) or f": choose from {', '.join(allowed)}"
            raise click.BadParameter(f"no {what} is named {name!r}{remedy}", ctx, param)


def _as_given(parameter: click.Parameter, value: object) -> object:
    """Spell a TOML value as the command line would: a switch is a word, a repeatable option a list."""
    if isinstance(value, list):
        return [_as_given_once(item) for item in value]
    once = value if getattr(parameter, "is_flag", False) else _as_given_once(value)
    return [once] if parameter.multiple else once


def _as_given_once(value: object) -> object:
    return ("on" if value else "off") if isinstance(value, bool) else value
