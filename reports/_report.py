"""Which report a run gets: one on its claims where claims were run, otherwise one on its sweep."""

from pathlib import Path

import pandas as pd

from normlab.inspection import Inspection
from normlab.reports._claims_page import claims_report, is_run_of_claims
from normlab.reports._page import report as sweep_report


def report(run_or_table: pd.DataFrame | Path | str, path: Path | str, *, inspection: Inspection | None = None) -> Path:
    """Write the report of a run as one HTML file that opens from disk and needs nothing else.

    A sweep's states what was run, the verdicts on the claims that the table can speak to, the plots with what each
    shows and the aggregated rows behind it, the definitions of all that is named, and how to get from a number
    to its rows. That of a run of claims has their verdicts by family, the statements to correct, and what was
    computed beside the sweep. The same run gives the same bytes.

    Args:
        run_or_table: a run folder, a table's file, or a table.
        path: the file to write.
        inspection: what an inspection said of the model that the table is of; the page leads with it.

    Raises:
        RunError: the folder is not a run, or has no finished cell.
        DataError: what was given is not a table, or has no rows.
        OSError: the file cannot be written.
    """
    if inspection is None and isinstance(run_or_table, Path | str) and is_run_of_claims(run_or_table):
        return claims_report(run_or_table, path)
    return sweep_report(run_or_table, path, inspection=inspection)
