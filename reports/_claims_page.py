"""The report on a run of claims: one page with a summary by family, details, corrections and computed numbers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from normlab.claims import CLAIMS, Verdict, false_verdicts_expected, judge_all, measured_with, read
from normlab.files import write_whole
from normlab.reports._claims import computed, counts, families
from normlab.reports._definitions import definitions
from normlab.reports._interval import compact
from normlab.reports._page import _TEMPLATES, _environment
from normlab.reports._rows import data_uri
from normlab.table import CELL_COLUMNS

_VERDICTS = "verdicts.json"


def is_run_of_claims(given: object) -> bool:
    """Return whether a report on ``given`` is one on claims: a folder in which claims were run."""
    if not isinstance(given, Path | str):
        return False
    folder = Path(given)
    return folder.is_dir() and ((folder / _VERDICTS).exists() or (folder / "evidence").is_dir())


def claims_report(
    folder: Path | str, path: Path | str, verdicts: Sequence[Verdict] | None = None, table: pd.DataFrame | None = None
) -> Path:
    """Write the report of a run of claims as one HTML file that opens from disk and needs nothing else.

    A summary stands on top, by family; below it every claim with its regimes side by side; then the statements to
    correct, each with its evidence and a sentence to cite; and the numbers that were computed. The same run gives
    the same bytes.

    Args:
        folder: of the run.
        path: the file to write.
        verdicts: what the run's table says, where that is known already.
        table: of the run, where it is read already.

    Raises:
        RunError: the folder holds no run.
        OSError: the file cannot be written.
    """
    folder, path = Path(folder), Path(path)
    table = read(folder) if table is None else table
    found = judge_all(table, _asked(folder), untested=True, own=True) if verdicts is None else tuple(verdicts)
    html = claims_page(table, found, measured_with(folder))
    write_whole(path, html)
    return path


def claims_page(table: pd.DataFrame, verdicts: Sequence[Verdict], versions: dict[str, str]) -> str:
    """Return the report on verdicts and the table that they come from, as HTML."""
    shown = _environment()
    shown.filters["compact"] = compact
    shown.globals["claims_css"] = Markup((_TEMPLATES / "claims.css").read_text(encoding="utf-8"))
    content = json.dumps({"claims": [one.to_json() for one in verdicts]}, ensure_ascii=False, allow_nan=False)
    return shown.get_template("claims.html.j2").render(
        title=_title(verdicts),
        counts=counts(verdicts),
        families=families(verdicts),
        corrections=[one for one in verdicts if one.corrects],
        computed=computed(table, verdicts),
        definitions=definitions(str(one.rows["query"]) for one in verdicts),
        false_verdicts=false_verdicts_expected(verdicts),
        seeds=sorted(int(seed) for seed in table["model_seed"].dropna().unique()),
        data=_data(table),
        cells=_cells(table),
        rows=len(table),
        versions=versions,
        download=data_uri(content),
        download_kb=round(len(content.encode()) / 1024),
    )


def _asked(folder: Path) -> list[str] | None:
    """The claims that the run was asked for, as far as the catalogue still has them; all if that is not known."""
    file = folder / _VERDICTS
    if not file.exists():
        return None
    ids = [entry["id"] for entry in json.loads(file.read_text(encoding="utf-8"))["claims"]]
    return [id for id in ids if id in CLAIMS] or None


def _title(verdicts: Sequence[Verdict]) -> str:
    said = ", ".join(f"{count} {word.replace('-', ' ')}" for word, count in counts(verdicts))
    return f"{len(verdicts)} {'claim' if len(verdicts) == 1 else 'claims'}: {said}"


def _data(table: pd.DataFrame) -> str:
    swept = table[table["quantity"] != "evidence"]
    if swept.empty:
        return ""
    first = swept.iloc[0]
    return f"{first['data']}, {first['batch']} × {first['tokens']} tokens"


def _cells(table: pd.DataFrame) -> int:
    swept: Any = table[(table["quantity"] != "evidence").to_numpy(dtype=bool)]
    names = [name for name in ("spec", "model_seed") if name in CELL_COLUMNS]
    return len(swept[names].drop_duplicates())
