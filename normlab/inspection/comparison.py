"""What a comparison found: the first layer where two models or runs part, and what each block has to do with it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd

from normlab.digits import minus, number
from normlab.inspection.agreeing import STREAMS, off_by, percent, span_words, spans, times, told_apart
from normlab.inspection.diverging import Broken, Worst
from normlab.inspection.finding import listed, place, plain, turns
from normlab.inspection.parting import Part, models_part, part_at, runs_part
from normlab.table import SUBLAYERS
from normlab.vocabulary import NO_SUM

_HEADINGS: Final = (
    "divergence", "divergence_worst", "inherited", "added", "added_worst", "ratio", "ratio_added", "grad_ratio",
)  # fmt: skip

#: What the columns of the table by layer are.
_SAYS: Final = {
    "divergence": "divergence: ‖x_B − x_A‖/‖x_A‖ of the median token of the streams",
    "inherited": "inherited: what the block of B makes of the blocks before",
    "added": "added: what it adds when both are fed with A's stream, in the coarser of their dtypes",
    "divergence_worst": "worst: the token with the largest",
    "ratio": "ratio: median rms of B's stream over A's",
    "ratio_added": "ratio added: over that of the block before",
    "grad_ratio": "grad ratio: norm of the gradient at the stream, B over A",
}
_RATIOS: Final = ("ratio", "ratio_added", "grad_ratio")


def comparison_says(columns: Iterable[str]) -> str:
    """Say what the columns of the table by layer are."""
    has = {*columns}
    said = f"{'; '.join(words for name, words in _SAYS.items() if name in has)}."
    near = " A ratio within 1 % of 1 is shown by how much it is off." if has & {*_RATIOS} else ""
    return f"{said}{near}{f' {NO_SUM}' if {'inherited', 'added'} <= has else ''}"


@dataclass(frozen=True)
class Comparison:
    """Two models or runs, A and B.

    Attributes:
        a: A's name.
        b: B's name.
        of: ``models`` on the same input, or ``runs``.
        table: rows of ``divergence``, ``inherited``, ``added``, ``ratio`` and ``ratio_added``, and of the worst token
            of ``divergence`` and ``added``.
        tolerance: how much streams may differ before they part.
        losses: of A and B, for models.
        notes: what should be known about how models were loaded.
        worst: the token that differs most at each place, and to which each block adds most.
        broken: the places where a stream is not finite.
        alone: what one model has and the other has not, in sentences.
        differs: in what the data of two runs differ.
        partial: whether numbers that are not finite are missing among the ratios.
    """

    a: str
    b: str
    of: Literal["models", "runs"]
    table: pd.DataFrame
    tolerance: float
    losses: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    worst: tuple[Worst, ...] = ()
    broken: tuple[Broken, ...] = ()
    alone: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    partial: bool = False

    @property
    def parts(self) -> Part | None:
        """The first place where the two part; ``None`` if they do not.

        Models part where a block adds more than the tolerance to the median token (:func:`models_part`), so that
        one token that rounding tips over makes no difference; :attr:`tokens_part` looks at every token. Runs part
        where the ratio of the streams does.
        """
        if self.of == "runs":
            return runs_part(self._streams("ratio"), self.tolerance)
        return self._part("")

    @property
    def tokens_part(self) -> Part | None:
        """The first place where single tokens of two models part, by the same rule for the worst token of each."""
        return self._part("_worst") if self.of == "models" else None

    def _part(self, of: str) -> Part | None:
        odd = [one.at for one in self.broken if one.differ]
        return models_part(self._streams(f"divergence{of}"), self._streams(f"added{of}"), odd, self.tolerance)

    @property
    def layers(self) -> pd.DataFrame:
        """A row for each place of a stream, with everything that is known of it and of the gradient there."""
        site = self.table["site"].astype(str)
        rows = self.table[site.isin(["stream", "stream_grad"])]
        wide = rows.assign(
            stack=rows["stack"].astype(str),
            sublayer=rows["sublayer"].astype(str),
            name=rows["name"].astype(str),
            layer=rows["layer"].astype(int),
            quantity=rows["quantity"].astype(str).where(rows["site"] == "stream", "grad_ratio"),
        ).pivot(index=["stack", "layer", "sublayer", "name"], columns="quantity", values="value")
        frame = self._in_order(wide.reset_index()).reset_index(drop=True)
        numbered = frame["name"].where(turns(frame["name"]) > 1, frame["sublayer"])
        frame = frame.assign(sublayer=numbered)
        return frame[["stack", "layer", "sublayer", *(name for name in _HEADINGS if name in frame.columns)]]

    @property
    def _stacks(self) -> set[str]:
        return {str(stack) for stack in self.table["stack"].unique()} - {""}

    def _place(self, part: Part) -> str:
        return place(part.at, self._stacks)

    def _streams(self, quantity: str) -> pd.DataFrame:
        rows = self.table[(self.table["site"].astype(str) == "stream") & (self.table["quantity"] == quantity)]
        return self._in_order(rows)

    def _in_order(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows of streams in the order in which models ran; of runs, which do not tell, in that of the table."""
        stacks = {name: rank for rank, name in enumerate(dict.fromkeys(self.table["stack"].astype(str)))}
        ranks = {"stack": stacks, "sublayer": {name: rank for rank, name in enumerate(SUBLAYERS)}}
        rows = rows.assign(turn=turns(rows["name"])).sort_values(
            ["stack", "layer", "turn", "sublayer"],
            kind="stable",
            key=lambda column: column.astype(str).map(ranks[str(column.name)]) if column.name in ranks else column,
        )
        seen = {one.at._replace(site=""): rank for rank, one in enumerate(self.worst) if one.quantity == "divergence"}
        order = [seen.get(part_at({**row, "value": 0.0}).at, len(self.worst)) for row in rows.to_dict("records")]
        return rows.assign(order=order).sort_values("order", kind="stable")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON; numbers that are not finite are null."""
        return {
            "a": self.a,
            "b": self.b,
            "of": self.of,
            "different_data": list(self.differs),
            "tolerance": self.tolerance,
            "parts": _plain(self.parts),
            "tokens_part": _plain(self.tokens_part),
            "worst_tokens": [one.to_dict() for one in self.worst],
            "losses": None if self.losses is None else plain(list(self.losses)),
            "notes": list(self.notes),
            "alone": list(self.alone),
            "nonfinite": [one.to_dict() for one in self.broken],
            "layers": [
                {str(name): plain(value) for name, value in row.items()} for row in self.layers.to_dict("records")
            ],
        }

    def __str__(self) -> str:
        said = [*(self._runs() if self.of == "runs" else [*self._models(), *self._blame()]), *self._ratios()]
        losses = [] if self.losses is None else [f"Loss: {' and '.join(told_apart(*self.losses))}."]
        names = [f"A: {self.a}", f"B: {self.b}"]
        return "\n".join([*self._different_data(), *names, *self.notes, *self._uncompared(), *said, *losses])

    def _different_data(self) -> list[str]:
        if not self.differs:
            return []
        return [
            f"! DIFFERENT DATA. A and B did not run on the same input: they differ in the {listed(self.differs)}. "
            "What follows differs for that reason too, not for the models alone."
        ]

    def _uncompared(self) -> list[str]:
        """Say what only one has, and where a stream is first not finite."""
        both = ["The blocks that both have are compared."] if self.alone and self.of == "models" else []
        said = [*self.alone, *both]
        first = {one.at.stack: one for one in reversed(self.broken)}
        left_out = " Such places of runs are not compared." if self.of == "runs" else ""
        return said + [f"The first entries that are not finite: after {one}.{left_out}" for one in first.values()]

    def _models(self) -> Iterator[str]:
        """Say where the median token and single tokens part, and how far apart they are at most."""
        parts, tokens, apart = self.parts, self.tokens_part, [one for one in self.worst if one.quantity == "divergence"]
        limit = number(self.tolerance)
        if not any(one.differ for one in self.broken) and not any(one.share > 0 for one in apart):
            yield "The streams are the same to the bit."
            return
        if parts is None:
            whom = "the median token" if tokens is not None else "any token"
            yield (
                f"The streams do not part: no block adds more than {limit} of its length, the tolerance, to {whom}."
                f"{self._most(apart)}"
            )
        elif odd := [one.differ for one in self.broken if one.differ and parts.is_at(one.at)]:
            entries = f"{odd[0]} entries are not finite in one and not the same in the other"
            yield f"The streams part in {self._place(parts)}: there {entries}."
        else:
            apart_there = f"the median token differs by {number(parts.value)} of its length (tolerance {limit})"
            yield f"The streams part in {self._place(parts)}: there {apart_there}.{self._most(apart)}"
        if tokens is not None and (parts is None or not parts.is_at(tokens.at)):
            here = {one.quantity: one for one in self.worst if tokens.is_at(one.at)}
            one = here.get("added", here["divergence"])
            share = f"{number(one.share)} of its length"
            does = f"it adds {share} to {one}" if one.quantity == "added" else f"there {one} differs by {share}"
            yield f"Single tokens part in {self._place(tokens)}: {does}."

    def _most(self, apart: Sequence[Worst]) -> str:
        """Say how far the median token and the worst one are apart at most."""
        rows = self._streams("divergence")
        known = rows[rows["value"].notna()]
        if known.empty or not (worst := [one for one in apart if 0 < one.share < math.inf]):
            return ""
        row, most = known.iloc[int(known["value"].argmax())], max(worst, key=lambda one: one.share)
        after = place(most.at, self._stacks)
        return (
            f" The median token differs at most by {number(float(row['value']))} of its length (after "
            f"{self._place(part_at(row))}), the worst one by {number(most.share)} ({most}, after {after})."
        )

    def _runs(self) -> Iterator[str]:
        """Say where the streams part; or that they do not, and whether anything else that is compared does."""
        ratios, tolerance = self._streams("ratio"), f"tolerance {percent(self.tolerance)}"
        others = {kind: span for kind, span in spans(self.table).items() if kind != STREAMS}
        beyond = [kind for kind, span in others.items() if off_by(span) > self.tolerance]
        rest = max((off_by(span) for span in others.values()), default=0.0)
        if (ratios["value"] == 1).all():
            agree = "are the same everywhere"
        else:
            most = _farthest(ratios)
            share = percent(off_by((most["value"], most["value"])))
            agree = f"agree everywhere within {share}, least after {self._place(part_at(most))}"
        if (parts := self.parts) is not None:
            yield (
                f"The streams part in {self._place(parts)}: there the median rms of B {times(parts.value)} that "
                f"of A ({tolerance})."
            )
        elif beyond:
            named = listed(f"{kind} ({span_words(others[kind])})" for kind in beyond)
            yield (
                f"The streams do not part, but other numbers do, B over A: {named} ({tolerance}); {STREAMS} {agree}."
            )
        else:
            within = f" within {percent(rest)}" if rest else ""
            all_else = f", and {listed(others)} are the same{within}" if others else ""
            yield f"They do not part: {STREAMS} {agree}{all_else} ({tolerance})."
        added = self.table[self.table["quantity"] == "ratio_added"]
        if len(added) and (added["value"] != 1).any():
            yield _changes_most(added)

    def _ratios(self) -> list[str]:
        """Say between which limits all ratios lie."""
        said = [f"{kind} {span_words(span)}" for kind, span in spans(self.table).items()]
        finite = ", where both are finite" if self.partial else ""
        return [f"B over A{finite}: {'; '.join(said)}."] if said else []

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
                memory = " and the memory" if (rows["sublayer"] == "cross").any() else ""
                said.append(
                    f"Block {most['layer']} adds most{where} ({number(float(most['value']))} to the median token, on "
                    f"the same input); after block {last['layer']} the blocks before{memory} account for "
                    f"{number(float(inherited))}, and it adds {number(float(last['value']))} itself."
                )
        return said


def _plain(part: Part | None) -> dict[str, Any] | None:
    return None if part is None else {**vars(part), "value": plain(part.value)}


def _farthest(rows: pd.DataFrame) -> "pd.Series":
    """Return the row whose ratio is farthest from 1."""
    return rows.iloc[int(rows["value"].map(lambda ratio: abs(math.log(ratio))).argmax())]


def _changes_most(added: pd.DataFrame) -> str:
    most = _farthest(added)
    change = 100 * (float(most["value"]) - 1)
    by = minus(f"by {change:+.2g} %") if abs(change) < 50 else f"{number(float(most['value']))}-fold"
    return f"Block {most['layer']} changes the ratio most, {by}."
