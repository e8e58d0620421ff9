"""Files that appear whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from normlab.errors import RunError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into one sentence.

    Raises:
        RunError: nothing can be written there.
    """
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path} cannot be written ({error.strerror or error}): free some space or choose another out; "
            f"what was finished is kept, and the same call goes on from there"
        ) from error


def part_of(path: Path) -> Path:
    """Return the temporary name under which ``path`` is written."""
    return path.with_name(f".{path.name}.part")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the name ``path`` when it is complete.

    Raises:
        RunError: it cannot be written; a file that stood there before still does.
    """
    part = part_of(path)
    with writing(path):
        try:
            with part.open("wb") as file:
                yield file
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file whole.

    Raises:
        RunError: it cannot be written.
    """
    with replacing(path) as file:
        file.write(content)
