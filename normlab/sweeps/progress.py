"""How far a sweep is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands after a cell.

    Attributes:
        done: cells that are finished, failed ones and those of earlier calls included.
        total: cells of this call's grid.
        failed: cells of this call that failed.
        elapsed_seconds: since this call began to run cells.
        remaining_seconds: estimate of what is left, or ``None`` before the first cell.
        label: the cell that finished last, in words.
    """

    done: int
    total: int
    failed: int
    elapsed_seconds: float
    remaining_seconds: float | None
    label: str


#: What a caller gives to hear of every finished cell.
ProgressCallback: TypeAlias = Callable[[Progress], None]


def remaining_seconds(elapsed: float, done_cost: float, left_cost: float) -> float | None:
    """Estimate the time left: what was done took ``elapsed``, and the rest goes at the same rate.

    Costs weigh the cells, since the large ones run first: counting cells would promise too much.
    """
    return elapsed * left_cost / done_cost if done_cost else None
