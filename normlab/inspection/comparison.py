"""What a comparison found: the first layer where two models or runs part, and what each block has to do with it."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import pandas as pd

from normlab.inspection.diverging import Broken
from normlab.inspection.finding import number, place, plain
from normlab.recording import Address
from normlab.table import SUBLAYERS

_HEADINGS: Final = ("divergence", "inherited", "added", "ratio", "ratio_added", "grad_ratio")


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

    def is_at(self, at: Address) -> bool:
        """Say whether this is that place."""
        return (self.stack, self.layer, self.sublayer) == (at.stack, at.layer, at.sublayer)

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
        broken: the places where a stream is not finite.
        alone: what one model has and the other has not, in sentences.
    """

    a: str
    b: str
    of: Literal["models", "runs"]
    table: pd.DataFrame
    tolerance: float
    losses: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    alone: tuple[str, ...] = ()

    @property
    def parts(self) -> Part | None:
        """The first place where the two part; ``None`` if they do not.

        Models part in the embedding if the streams differ there by more than the tolerance, and in the first block
        that adds more than it on the same input; where that is not known, where the streams differ by more; and where
        an entry is not finite in one and not the same in the other. Runs part where the ratio of the streams does.
        """
        rows = self._streams
        odd = {(one.at.stack, one.at.layer, one.at.sublayer) for one in self.broken if one.differ}
        for key, own in rows.groupby(["stack", "layer"], observed=True, sort=False):
            stack, layer = cast(tuple[str, int], key)
            names, values = own["sublayer"].astype(str).tolist(), own["value"].tolist()
            beyond = [number for number, value in enumerate(values) if self._differs(value)]
            if self.of == "models" and layer and (added := self._added(str(stack), layer)) == added:
                beyond = (beyond or [len(values) - 1]) if self._differs(added) else []
            beyond += [number for number, name in enumerate(names) if (str(stack), layer, name) in odd]
            if beyond:
                return Part(str(stack), layer, names[min(beyond)], values[min(beyond)])
        return None

    @property
    def layers(self) -> pd.DataFrame:
        """A row for each place of a stream, with everything that is known of it and of the gradient there."""
        site = self.table["site"].astype(str)
        rows = self.table[site.isin(["stream", "stream_grad"])]
        wide = rows.assign(
            stack=rows["stack"].astype(str),
            sublayer=rows["sublayer"].astype(str),
            layer=rows["layer"].astype(int),
            quantity=rows["quantity"].astype(str).where(rows["site"] == "stream", "grad_ratio"),
        ).pivot(index=["stack", "layer", "sublayer"], columns="quantity", values="value")
        frame = self._in_order(wide.reset_index()).reset_index(drop=True)
        return frame[["stack", "layer", "sublayer", *(name for name in _HEADINGS if name in frame.columns)]]

    @property
    def _streams(self) -> pd.DataFrame:
        quantity = "divergence" if self.of == "models" else "ratio"
        return self._in_order(
            self.table[(self.table["site"].astype(str) == "stream") & (self.table["quantity"] == quantity)]
        )

    def _in_order(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows of streams in the order in which a model runs: the encoder before the decoder, as the table."""
        stacks = {name: rank for rank, name in enumerate(dict.fromkeys(self.table["stack"].astype(str)))}
        ranks = {"stack": stacks, "sublayer": {name: rank for rank, name in enumerate(SUBLAYERS)}}
        return rows.sort_values(
            ["stack", "layer", "sublayer"],
            kind="stable",
            key=lambda column: column.astype(str).map(ranks[str(column.name)]) if column.name in ranks else column,
        )

    def _added(self, stack: str, layer: int) -> float:
        rows = self.table[(self.table["quantity"] == "added") & (self.table["layer"] == layer)]
        values = rows.loc[rows["stack"].astype(str) == stack, "value"]
        return float(values.iloc[0]) if len(values) else float("nan")

    def _differs(self, value: float) -> bool:
        if self.of == "models":
            return value > self.tolerance
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
            "alone": list(self.alone),
            "nonfinite": [one.to_dict() for one in self.broken],
            "layers": [
                {str(name): plain(value) for name, value in row.items()} for row in self.layers.to_dict("records")
            ],
        }

    def __str__(self) -> str:
        said = self._runs() if self.of == "runs" else [self._models(), *self._blame()]
        losses = [] if self.losses is None else [f"Loss: {' and '.join(map(_loss, self.losses))}."]
        return "\n".join([f"A: {self.a}", f"B: {self.b}", *self.notes, *self._uncompared(), *said, *losses])

    def _uncompared(self) -> list[str]:
        """Say what only one has, and where a stream is first not finite."""
        said = [*self.alone, "The blocks that both have are compared."] if self.alone else []
        first = {one.at.stack: one for one in reversed(self.broken)}
        left_out = " Such places of runs are not compared." if self.of == "runs" else ""
        return said + [f"The first entries that are not finite: after {one}.{left_out}" for one in first.values()]

    def _models(self) -> str:
        parts, rows = self.parts, self._streams
        tolerance = f"tolerance {number(self.tolerance)}"
        if parts is not None:
            if odd := [one.differ for one in self.broken if one.differ and parts.is_at(one.at)]:
                return (
                    f"They part in {parts}: there {odd[0]} entries are not finite in one and not the same in the other."
                )
            return (
                f"They part in {parts}: there the streams differ by {number(parts.value)} of the median token's length "
                f"({tolerance})."
            )
        known = rows[rows["value"].notna()]
        if (known["value"] == 0).all():
            return "The streams are the same to the bit."
        most = known.iloc[int(known["value"].argmax())]
        return (
            f"They do not part: no block adds more than the tolerance of {number(self.tolerance)}, and the streams "
            f"differ at most by {number(float(most['value']))} of the median token's length (after "
            f"{place(_address(most))})."
        )

    def _runs(self) -> list[str]:
        ratios, tolerance = self._streams, f"tolerance {_percent(self.tolerance)}"
        if (parts := self.parts) is not None:
            said = (
                f"They part in {parts}: there the stream's median rms of B is {number(parts.value)} times that of A "
                f"({tolerance})."
            )
        elif (ratios["value"] == 1).all():
            return ["The streams' median rms are the same everywhere."]
        else:
            most = _farthest(ratios)
            said = (
                f"They do not part: the streams' median rms agree everywhere within "
                f"{_percent(abs(most['value'] - 1))} ({tolerance}), least after {place(_address(most))}."
            )
        added = self.table[self.table["quantity"] == "ratio_added"]
        return [said, *([_changes_most(added)] if len(added) else []), *self._gradients()]

    def _gradients(self) -> list[str]:
        """Say between which limits the gradients' ratio lies."""
        of_gradients = (self.table["site"] == "stream_grad") & (self.table["quantity"] == "ratio")
        values = self.table.loc[of_gradients, "value"]
        if values.empty:
            return []
        low, high = f"{values.min():.4g}", f"{values.max():.4g}"
        return [f"The gradients at the streams are {low if low == high else f'{low} to {high}'} times those of A."]

    def _blame(self) -> list[str]:
        """Say which block adds most, and what is inherited at the end."""
        said = []
        for stack, rows in self.table.groupby("stack", observed=True, sort=False):
            added = rows[(rows["quantity"] == "added")]
            known = added[added["value"].notna()]
            where = f" in the {stack}" if self.table["stack"].nunique() > 1 else ""
            if len(added) and known.empty and (reason := str(added["status"].iloc[0])) != "nonfinite":
                said.append(f"Inherited and added divergence cannot be told apart{where}: {reason}.")
            elif len(known) and 0 < known["value"].max() < math.inf:
                most, last = known.iloc[int(known["value"].argmax())], known.iloc[int(known["layer"].argmax())]
                inherited = rows[(rows["quantity"] == "inherited") & (rows["layer"] == last["layer"])]["value"].iloc[0]
                said.append(
                    f"Block {most['layer']} adds most{where} ({number(float(most['value']))} on the same input); after "
                    f"block {last['layer']} the blocks before account for {number(float(inherited))}, and it adds "
                    f"{number(float(last['value']))} itself."
                )
        return said


def _farthest(rows: pd.DataFrame) -> "pd.Series":
    """Return the row whose ratio is farthest from 1."""
    return rows.iloc[int(rows["value"].map(lambda ratio: abs(math.log(ratio))).argmax())]


def _changes_most(added: pd.DataFrame) -> str:
    most = _farthest(added)
    change = 100 * (float(most["value"]) - 1)
    by = f"by {change:+.2g} %".replace("-", "−") if abs(change) < 50 else f"{number(float(most['value']))}-fold"
    return f"Block {most['layer']} changes the ratio most, {by}."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _loss(value: float) -> str:
    return number(value) if math.isfinite(value) else "not finite"


def _address(row: "pd.Series") -> Address:
    return Address(str(row["stack"]), int(row["layer"]), str(row["sublayer"]))
