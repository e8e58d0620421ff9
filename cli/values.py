"""Kinds of values on the command line: each function reads one word."""

import math
from collections.abc import Callable
from typing import Any

import click


def whole(word: object) -> int:
    """Read a whole number of at least 1."""
    try:
        number = int(str(word))
    except ValueError:
        number = 0
    if number < 1:
        raise click.BadParameter(f"{word} is not a whole number of at least 1")
    return number


def number(word: object) -> float:
    """Read a finite number."""
    try:
        value = float(str(word))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise click.BadParameter(f"{word} is not a number")
    return value


def share(word: object) -> float:
    """Read a finite number of at least 0."""
    try:
        value = float(str(word))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise click.BadParameter(f"{word} is not a finite number of at least 0")
    return value


def name(word: object) -> str:
    """Read a name as it is; the library knows which there are, a plugin's included."""
    return str(word)


def switch(word: object) -> bool:
    """Read ``on`` or ``off``."""
    if word not in ("on", "off", True, False):
        raise click.BadParameter(f"{word} is neither on nor off")
    return word in ("on", True)


def pair(word: object) -> tuple[str, bool | int | float | str]:
    """Read one option of a norm, placement or init: ``gain=false``."""
    if isinstance(word, tuple):
        return word
    key, equals, text = str(word).partition("=")
    if not (key and equals and text):
        raise click.BadParameter(f"{word} is no pair: give name=value, such as gain=false")
    return key, _plain(text)


def several(item: Callable[[object], Any]) -> Callable[[object], tuple[Any, ...]]:
    """Return the function that reads a list with commas, ``2,4,8``."""

    def read(words: object) -> tuple[Any, ...]:
        if isinstance(words, tuple):
            return words
        items = [word.strip() for word in str(words).split(",")]
        if "" in items:
            raise click.BadParameter(f"{words!r} has an empty item: give a list such as 2,4,8")
        return tuple(item(word) for word in items)

    return read


def _plain(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "on", "false", "off"):
        return text.lower() in ("true", "on")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
