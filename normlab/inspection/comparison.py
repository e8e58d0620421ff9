"""What a comparison found: the first layer where two models or runs part, and what each block has to do with it."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import pandas as pd

from normlab.inspection.finding import number, place, plain
from normlab.recording import Address
from normlab.table import SUBLAYERS

_HEADINGS: Final = ("divergence", "inherited", "added", "ratio", "ratio_added")


@dataclass(frozen=True)
class Part:
    """The first place where two streams differ by more than the tolerance.

    Attributes:
        stack: which stream.
        layer: the block; 0 is the embedding.
        sublayer: the sub-layer.
        value: how much they differ there.
    """

    stack: str
    layer: int
    sublayer: str
    value: float

    def __str__(self) -> str:
        return place(Address(self.stack, self.layer, self.sublayer))


@dataclass(frozen=True)
class Comparison:
    """Two models or runs, A and B.

    Attributes:
        a: A's name.
        b: B's name.
        of: ``models`` on the same input, or ``runs``.
        table: rows of ``divergence``, ``inherited``, ``added``, ``ratio`` and ``ratio_added``.
        tolerance: how much streams may differ before they part.
        losses: of A and B, for models.
        notes: what should be known about how models were loaded.
    """

    a: str
    b: str
    of: Literal["models", "runs"]
    table: pd.DataFrame
    tolerance: float
    losses: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> Part | None:
        """The first place where the two part; ``None`` if they do not.

        Models part in the embedding if the streams differ there by more than the tolerance, and in the first block
        that adds more than it on the same input; where that is not known, where the streams differ by more. Runs part
        where the ratio of the streams does.
        """
        rows = self._streams
        for key, own in rows.groupby(["stack", "layer"], observed=True, sort=False):
            stack, layer = cast(tuple[str, int], key)
            names, values = own["sublayer"].astype(str).tolist(), own["value"].tolist()
            beyond = [number for number, value in enumerate(values) if self._differs(value)]
            if self.of == "models" and layer and (added := self._added(str(stack), layer)) == added:
                beyond = (beyond or [len(values) - 1]) if self._differs(added) else []
            if beyond:
                return Part(str(stack), layer, names[beyond[0]], values[beyond[0]])
        return None

    @property
    def layers(self) -> pd.DataFrame:
        """A row for each place of a stream, with everything that is known of it."""
        rows = self.table[self.table["site"].astype(str) == "stream"]
        wide = rows.assign(
            stack=rows["stack"].astype(str),
            sublayer=rows["sublayer"].astype(str),
            layer=rows["layer"].astype(int),
            quantity=rows["quantity"].astype(str),
        ).pivot_table(index=["stack", "layer", "sublayer"], columns="quantity", values="value", observed=True)
        frame = wide.reset_index()
        frame["rank"] = frame["sublayer"].map({name: rank for rank, name in enumerate(SUBLAYERS)})
        frame = frame.sort_values(["stack", "layer", "rank"]).reset_index(drop=True)
        return frame[["stack", "layer", "sublayer", *(name for name in _HEADINGS if name in frame.columns)]]

    @property
    def _streams(self) -> pd.DataFrame:
        quantity = "divergence" if self.of == "models" else "ratio"
        rows = self.table[(self.table["site"].astype(str) == "stream") & (self.table["quantity"] == quantity)]
        rank = rows["sublayer"].astype(str).map({name: place for place, name in enumerate(SUBLAYERS)})
        return rows.assign(rank=rank).sort_values(["stack", "layer", "rank"], kind="stable")

    def _added(self, stack: str, layer: int) -> float:
        rows = self.table[(self.table["quantity"] == "added") & (self.table["layer"] == layer)]
        values = rows.loc[rows["stack"].astype(str) == stack, "value"]
        return float(values.iloc[0]) if len(values) else float("nan")

    def _differs(self, value: float) -> bool:
        if self.of == "models":
            return not value <= self.tolerance
        return abs(math.log(value)) > math.log1p(self.tolerance)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON; numbers that are not finite are null."""
        parts = self.parts
        return {
            "a": self.a,
            "b": self.b,
            "of": self.of,
            "tolerance": self.tolerance,
            "parts": None if parts is None else {**vars(parts), "value": plain(parts.value)},
            "losses": None if self.losses is None else plain(list(self.losses)),
            "notes": list(self.notes),
            "layers": [
                {str(name): plain(value) for name, value in row.items()} for row in self.layers.to_dict("records")
            ],
        }

    def __str__(self) -> str:
        return "\n".join([f"A: {self.a}", f"B: {self.b}", *self.notes, *self._said()])

    def _said(self) -> list[str]:
        parts = self.parts
        if self.of == "runs":
            return [self._runs(parts)]
        rows = self._streams
        lines = []
        if (rows["value"] == 0).all():
            lines.append("The streams are the same to the bit.")
        elif parts is None:
            most = rows.iloc[int(rows["value"].argmax())]
            lines.append(
                f"They do not part: no block adds more than the tolerance of {number(self.tolerance)}, and the streams "
                f"differ at most by {number(float(most['value']))} of the median token's length (after "
                f"{place(_address(most))})."
            )
        else:
            lines.append(
                f"They part in {parts}: there the streams differ by {number(parts.value)} of the median token's length "
                f"(tolerance {number(self.tolerance)})."
            )
        lines += self._blame()
        if self.losses is not None:
            lines.append(f"Loss: {number(self.losses[0])} and {number(self.losses[1])}.")
        return lines

    def _runs(self, parts: Part | None) -> str:
        if parts is None:
            return f"They do not part: everywhere the streams' median rms agree within {self.tolerance:.0%}.".replace(
                "%", " %"
            )
        return (
            f"They part in {parts}: there the stream's median rms of B is {number(parts.value)} times that of A "
            f"(tolerance {self.tolerance:.0%}).".replace("%", " %")
        )

    def _blame(self) -> list[str]:
        """Say which block adds most, and what is inherited at the end."""
        said = []
        for stack, rows in self.table.groupby("stack", observed=True, sort=False):
            added = rows[(rows["quantity"] == "added")]
            known = added[added["value"].notna()]
            where = f" in the {stack}" if self.table["stack"].nunique() > 1 else ""
            if len(added) and known.empty:
                said.append(f"Inherited and added divergence cannot be told apart{where}: {added['status'].iloc[0]}.")
            elif len(known) and (known["value"] > 0).any():
                most, last = known.iloc[int(known["value"].argmax())], known.iloc[int(known["layer"].argmax())]
                inherited = rows[(rows["quantity"] == "inherited") & (rows["layer"] == last["layer"])]["value"].iloc[0]
                said.append(
                    f"Block {most['layer']} adds most{where} ({number(float(most['value']))} on the same input); after "
                    f"block {last['layer']} the blocks before account for {number(float(inherited))}, and it adds "
                    f"{number(float(last['value']))} itself."
                )
        return said


def _address(row: "pd.Series") -> Address:
    return Address(str(row["stack"]), int(row["layer"]), str(row["sublayer"]))
