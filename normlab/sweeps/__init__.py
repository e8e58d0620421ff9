"""Sweeps: grid → cells → executor → run folder → table."""

from normlab.sweeps.cells import Cell, run_cell
from normlab.sweeps.grids import grid
from normlab.sweeps.loading import Run, load, read_run
from normlab.sweeps.progress import Progress
from normlab.sweeps.records import Record, SweepWarning
from normlab.sweeps.sweeping import sweep

__all__ = [
    # what to measure
    "Cell",
    "grid",
    # measuring
    "Progress",
    "SweepWarning",
    "run_cell",
    "sweep",
    # reading
    "Record",
    "Run",
    "load",
    "read_run",
]
