"""The HTML report: one self-contained page that says what was run, what holds, and which rows show it."""

from normlab.reports._claims_page import claims_report
from normlab.reports._report import report

__all__ = ["claims_report", "report"]
