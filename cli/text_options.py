"""The options that say what text, and how much of it, checkpoints run on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

#: What weights may be turned into.
DTYPES: Final = click.Choice(("float32", "float64", "bfloat16", "float16"))


def text_option(words: str) -> Callable[[Function], Function]:
    """Return the option ``--text``, with what it is for and what there is without it."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--text", type=file, metavar="FILE", help=words)


def windows(function: Function) -> Function:
    """Add the options that say how many windows of the text run, and how long they are."""
    tokens = click.option("--tokens", type=click.IntRange(2), default=128, metavar="N", help="Tokens in each.")
    batch = click.option("--batch", type=click.IntRange(1), default=2, metavar="N", help="Sequences.")
    return batch(tokens(function))
