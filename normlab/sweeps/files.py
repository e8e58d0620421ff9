"""What is written to a run, or said in one sentence why it cannot be."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from normlab.errors import RunError
from normlab.files import write_whole


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


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file whole.

    Raises:
        RunError: it cannot be written; a file that stood there before still does.
    """
    with writing(path):
        write_whole(path, content)
