"""Where a verdict's numbers come from: the rows, their hash, and the versions."""

import gzip
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from normlab.claims.claim import Regime
from normlab.claims.evidence import QUANTITY
from normlab.fits import choose
from normlab.table import normalise, ordered, to_csv_bytes

#: The rows that a claim about initialisation may read.
AT_START = "source == 'measured' and step == 0"


def rows_used(
    table: pd.DataFrame, regimes: Iterable[Regime], specs: tuple[str, ...] | None = None
) -> dict[str, str | int]:
    """Return a query that gives the rows that ``regimes`` read, the rows' hash and their count.

    Args:
        table: the rows that a claim was given.
        regimes: those that were tested.
        specs: ids of the only models that count, where that was asked for.
    """
    either = " or ".join(dict.fromkeys(f"(({regime.query}) and ({regime.statistic.query}))" for regime in regimes))
    query = f"{AT_START} and ({either})" if either else ""
    if specs and query:
        query += f" and (quantity == '{QUANTITY}' or spec in {specs!r})"
    if not query:
        return {"query": "", "hash": _hash_of_none(tuple(table.columns)), "count": 0}
    rows = choose(table, query)
    return {"query": query, "hash": rows_hash(rows), "count": len(rows)}


def rows_hash(rows: pd.DataFrame) -> str:
    """Return the SHA-256 of the rows' CSV text in key order: whatever the order in which they were given.

    Raises:
        DataError: two rows have the same key.
    """
    return hashlib.sha256(gzip.decompress(to_csv_bytes(ordered(normalise(rows))))).hexdigest()


@cache
def _hash_of_none(columns: tuple[str, ...]) -> str:
    return rows_hash(pd.DataFrame(columns=list(columns)))


def versions() -> dict[str, str]:
    """Return the versions of normlab, Python and the libraries that are installed."""
    return dict(_versions())


def measured_with(folder: Path) -> dict[str, str]:
    """Return the versions that a run's folder names; today's where it has computed numbers alone."""
    header = folder / "run.json"
    if not header.exists():
        return versions()
    found: dict[str, str] = json.loads(header.read_text(encoding="utf-8"))["versions"]
    return found


@cache
def _versions() -> Mapping[str, str]:
    found = {"python": platform.python_version()}
    for name in ("normlab", "numpy", "scipy", "pandas", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
