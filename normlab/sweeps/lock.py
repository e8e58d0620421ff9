"""One process at a time writes a run folder."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from normlab.errors import RunError
from normlab.sweeps.files import writing

NAME = "run.lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock.

    The system's own lock on the file is what counts: it goes when its process dies, however that
    happens, so the file of a dead process is simply taken over.

    Raises:
        RunError: another process, or another thread of this one, is writing the folder.
    """
    path = folder / NAME
    with writing(path):
        descriptor = _acquire(path)
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _lock(descriptor):
                holder = os.read(descriptor, 32).decode(errors="replace").strip()
                raise RunError(
                    f"{path.parent} is being written by process {holder or 'of another machine'}: "
                    f"wait until it ends, or choose another out"
                )
            # Its last holder may have removed the file between opening and locking it.
            if path.exists() and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


if sys.platform == "win32":

    def _lock(descriptor: int) -> bool:
        """Two runs are not kept apart where the system has no flock."""
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
