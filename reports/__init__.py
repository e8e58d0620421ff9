"""The HTML report: one self-contained page that says what was run, what holds, and which rows show it."""

from normlab.reports._page import report

__all__ = ["report"]
