"""Theory for a run, kept in its folder so that plots and reports need not compute it again."""

import contextlib
from pathlib import Path

import pandas as pd

from normlab.data import from_dict
from normlab.errors import DataError, RunError
from normlab.sweeps.files import write_bytes
from normlab.sweeps.loading import read_run
from normlab.table import read_csv, to_csv_bytes
from normlab.theory.beside import Beside, identity, predicted
from normlab.theory.cases import cases

_NAME = "theory-{}.csv.gz"


def theory_of(table: pd.DataFrame, path: Path | str | None = None) -> Beside:
    """Predict what was measured in ``table``.

    Args:
        table: the table of a sweep, or a part of it.
        path: the run folder that it comes from, if it comes from one: it says which text was read, and keeps the
            predictions (``theory-….csv.gz``) where it can be written to.

    Raises:
        RunError: the folder is not a run.
    """
    folder = Path(path) if path is not None and Path(path).is_dir() else None
    source = None
    if folder is not None:
        with contextlib.suppress(DataError, KeyError):
            source = from_dict(read_run(folder).data)
    found = cases(table, source)
    if folder is None or not found:
        return Beside(found, predicted(found))
    kept = folder / _NAME.format(identity(found))
    if kept.exists():
        with contextlib.suppress(DataError):
            return Beside(found, read_csv(kept))
    fresh = predicted(found)
    with contextlib.suppress(OSError, RunError):
        _keep(fresh, kept)
    return Beside(found, fresh)


def _keep(table: pd.DataFrame, path: Path) -> None:
    """Write the predictions, and remove those that they replace."""
    write_bytes(path, to_csv_bytes(table))
    for other in path.parent.glob(_NAME.format("*")):
        if other != path:
            other.unlink()
