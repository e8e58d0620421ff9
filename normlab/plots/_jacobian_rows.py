"""The rows of Jacobian measurements that plots are drawn from: maps from a layer to the next."""

from dataclasses import dataclass

import pandas as pd

from normlab.plots._rows import Rows


@dataclass(frozen=True)
class MapRows(Rows):
    """The rows of one quantity of the blocks' Jacobians; ``layer`` is where a block's map starts.

    Attributes:
        name: value of the column ``name``.
        sublayers: none: a whole block's map belongs to no sub-layer.
    """

    name: str = ""
    sublayers: tuple[str, ...] = ("",)

    @property
    def query(self) -> str:
        """The expression with which ``table.query`` selects these rows."""
        return f"quantity == {self.quantity!r} and name == {self.name!r} and to_layer == layer + 1"

    def query_of(self, table: pd.DataFrame) -> str:
        """:attr:`query`, whatever the table."""
        return self.query

    @property
    def words(self) -> str:
        """What the rows hold, in words."""
        return f"{self.quantity} of blocks (normlab jacobian measures it)"

    def select(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return these rows of ``table``."""
        rows = super().select(table)
        next_one = (rows["to_layer"] == rows["layer"] + 1).fillna(False).astype(bool)
        return rows[next_one & (rows["name"] == self.name)]
