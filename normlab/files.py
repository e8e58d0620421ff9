"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a name beside ``path`` to write to, which becomes ``path`` at the end, or vanishes if that fails.

    Raises:
        OSError: the folder does not exist or cannot be written; a file that stood there before still does.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes | str) -> None:
    """Write ``content`` to ``path``, text as UTF-8, and its folder if that is missing.

    Raises:
        OSError: it cannot be written; a file that stood there before still does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
