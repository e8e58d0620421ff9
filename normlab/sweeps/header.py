"""``run.json``: what a run is, so that it can be resumed, extended and understood without the code."""

import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch

import normlab
from normlab import table
from normlab.errors import RunError
from normlab.sweeps.cells import Cell

NAME: Final = "run.json"

#: What all cells of a run share, and what to say where a call differs.
_SHARED: Final = {
    "data": "data source",
    "dtype": "dtype",
    "sites": "choice of sites",
    "quantities": "choice of quantities",
}


def header_of(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the header of a run of ``cells``, which differ in their specs and seeds alone."""
    specs = {cell.spec.id: cell.spec for cell in cells}
    first = cells[0]
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    return {
        "schema_version": table.SCHEMA_VERSION,
        "data": first.data.to_dict(),
        "data_columns": first.data.columns(),
        "dtype": first.dtype,
        "sites": None if first.sites is None else list(first.sites),
        "quantities": None if first.quantities is None else list(first.quantities),
        "seeds": seeds,
        "grid": [{"id": id, "spec": spec.to_dict(), "columns": spec.columns()} for id, spec in specs.items()],
        "calls": [{"specs": list(specs), "seeds": seeds}],
        "versions": versions(),
        "machine": machine(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    """Return the versions that numbers can depend on."""
    return {
        "normlab": normlab.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "pandas": pd.__version__,
    }


def machine() -> dict[str, Any]:
    """Return what the numbers were computed on."""
    return {"platform": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count(), "device": "cpu"}


def read(folder: Path) -> dict[str, Any]:
    """Return the header of the run in ``folder``.

    Raises:
        RunError: there is none, or it is damaged or of another schema.
    """
    path = folder / NAME
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        schema = header["schema_version"]
    except FileNotFoundError as error:
        raise RunError(f"{folder} is not a run folder (it has no {NAME}): give the out of a sweep") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path} cannot be read as the header of a run ({error}): choose another folder") from error
    if schema != table.SCHEMA_VERSION:
        raise RunError(
            f"{folder} has tables of schema {schema} and this normlab writes schema {table.SCHEMA_VERSION}: "
            f"choose another out, or use the normlab that wrote it ({header.get('versions', {}).get('normlab')})"
        )
    return dict(header)


def check_extends(folder: Path, present: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Check that cells of ``wanted`` can stand in one table with those of ``present``.

    Raises:
        RunError: the data source, dtype, sites or quantities differ.
    """
    for name, what in _SHARED.items():
        before, now = _identity(present.get(name)), _identity(wanted[name])
        if before != now:
            raise RunError(
                f"{folder} was run with another {what} ({_text(before)}, now {_text(now)}): "
                f"choose another out, or the same {what}"
            )


def _identity(value: Any) -> Any:
    """Where a text lies does not matter, what it says does."""
    return {name: item for name, item in value.items() if name != "path"} if isinstance(value, dict) else value


def _text(value: Any) -> str:
    if not isinstance(value, dict):
        return "the default" if value is None else str(value)
    return " ".join(f"{name}={str(item)[:12]}" for name, item in value.items())


def changed_versions(present: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Return which versions differ, as ``torch 2.12 → 2.13``; empty where none does."""
    before = present.get("versions", {})
    changes = ((name, before.get(name), now) for name, now in wanted["versions"].items())
    return ", ".join(f"{name} {old} → {new}" for name, old, new in changes if old != new)


def merged(present: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the header of both runs together; when and with what it began stays."""
    grid = {entry["id"]: entry for entry in (*present["grid"], *wanted["grid"])}
    calls = [*present["calls"], *(call for call in wanted["calls"] if call not in present["calls"])]
    seeds = sorted({*present["seeds"], *wanted["seeds"]})
    return present | {"grid": list(grid.values()), "seeds": seeds, "calls": calls}


def cell_columns(header: dict[str, Any], spec: str, model_seed: int, data_seed: int) -> dict[str, object]:
    """Return a cell's columns from the header alone: its norms and placements need not be registered here."""
    columns = next(entry["columns"] for entry in header["grid"] if entry["id"] == spec)
    seeds = {"loss": "cross-entropy", "model_seed": model_seed, "data_seed": data_seed}
    values = columns | header["data_columns"] | seeds
    return {name: values.get(name) for name in table.CELL_COLUMNS}
