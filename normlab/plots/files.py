"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a name beside ``path`` to write to, which becomes ``path`` at the end, or vanishes if that fails.

    Raises:
        OSError: the folder does not exist or cannot be written.
    """
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
