"""Which rows of a table a plot is drawn from."""

from dataclasses import dataclass

import pandas as pd

from normlab.table import SITES


@dataclass(frozen=True)
class Rows:
    """The rows that have one meaning: a quantity at a site, or of a parameter's role.

    Attributes:
        quantity: value of the column ``quantity``.
        site: value of the column ``site``; empty for parameters.
        role: value of the column ``role``; empty for tensors.
        sublayers: the sub-layers whose rows enter, in the order of their panels.
        apart: each sub-layer is a curve of its own, not a continuation of the one before.
        last: only the last block of each model.
    """

    quantity: str
    site: str = ""
    role: str = ""
    sublayers: tuple[str, ...] = ("mlp",)
    apart: bool = False
    last: bool = False

    @property
    def query(self) -> str:
        """The expression with which ``table.query`` selects these rows."""
        names = ", ".join(repr(name) for name in self.sublayers)
        parts = [f"quantity == {self.quantity!r}", f"site == {self.site!r}", f"role == {self.role!r}"]
        parts += [f"sublayer in [{names}]", *(["layer == depth"] if self.last else [])]
        return " and ".join(parts)

    def query_of(self, table: pd.DataFrame) -> str:
        """:attr:`query` for ``table``: the encoder of an encoder-decoder has a last layer of its own."""
        if not self.last or "encoder_depth" not in table.columns or table["encoder_depth"].isna().all():
            return self.query
        own = "(stack == 'encoder' and layer == encoder_depth or stack != 'encoder' and layer == depth)"
        return self.query.replace("layer == depth", own)

    @property
    def words(self) -> str:
        """What the rows hold, in words."""
        where = f"the site {self.site}" if self.site in SITES else f"the parameter role {self.role}"
        return f"{self.quantity} at {where}, sub-layer {' or '.join(self.sublayers)}"

    def select(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return these rows of ``table``."""
        chosen = (
            (table["quantity"] == self.quantity)
            & (table["site"] == self.site)
            & (table["role"] == self.role)
            & table["sublayer"].isin(self.sublayers)
            & table["layer"].notna()
        )
        rows = with_depth(table, table[chosen])
        return rows[(rows["layer"] == own_depth(rows)).fillna(False).astype(bool)] if self.last else rows

    def missing(self, table: pd.DataFrame) -> str:
        """Say in one sentence why there is nothing to draw, or return an empty string."""
        rows = self.select(table)
        if rows.empty:
            return f"the table has no rows of {self.words}: record that site and quantity, or choose another plot"
        if rows["value"].notna().any() or rows["status"].isin(["nonfinite", "exact-zero"]).any():
            return ""
        reasons = ", ".join(sorted({str(status) for status in rows["status"]}))
        return f"no row of {self.words} has a value (status: {reasons}): choose another plot"


def with_depth(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` with a column ``depth``: a table of one model has none, and its last layer says it."""
    if "depth" in rows.columns and rows["depth"].notna().all():
        return rows
    deepest = table.groupby("stack", observed=True)["layer"].max()
    inferred = rows["stack"].astype(object).map(deepest).astype("Int64")
    return rows.assign(depth=rows["depth"].fillna(inferred) if "depth" in rows.columns else inferred)


def own_depth(rows: pd.DataFrame) -> pd.Series:
    """Return the depth of each row's own stack: ``depth`` is the decoder's where a model has an encoder too."""
    if "encoder_depth" not in rows.columns or "stack" not in rows.columns:
        return rows["depth"]
    encoder = (rows["stack"].astype(object) == "encoder") & rows["encoder_depth"].notna()
    return rows["depth"].where(~encoder, rows["encoder_depth"])
