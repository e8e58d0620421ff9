"""What an inspection gives: findings, a table, and the table by layer that people read."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final

import pandas as pd

from normlab.digits import number
from normlab.errors import counted
from normlab.inspection.asserting import Outcome, outcome
from normlab.inspection.conditions import Condition
from normlab.inspection.finding import OF_BLOCK, Finding, listed, plain
from normlab.inspection.looking import Look
from normlab.recording import Architecture

#: The columns of the table by layer: heading, site and quantity, or a role's gradient.
COLUMNS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("rms", "stream", "rms", ""),
    ("median rms", "stream", "median_rms", ""),
    ("bulk rms", "stream", "bulk_rms", ""),
    ("max", "stream", "max_abs", ""),
    ("block change", "stream", "block_change", ""),
    ("gradient", "stream_grad", "l2", ""),
    ("input rms", "input", "rms", ""),
    ("update ratio", "update", "update_ratio", ""),
    ("median update ratio", "update", "median_update_ratio", ""),
    ("alignment", "update", "alignment", ""),
    ("bf16 lost", "update", "bf16_lost_share", ""),
    ("logit max", "logits", "max_abs", ""),
)

#: What they are, of the stream after the sub-layer and of the sub-layer.
_OF_STREAM: Final[Mapping[str, str]] = {
    "rms": "rms (of all entries)",
    "median rms": "median rms (of the median token)",
    "bulk rms": "bulk rms (of all entries but those of the most massive token of each sequence)",
    "max": "max (largest entry)",
    "block change": "block change (median over tokens of ‖x_ℓ − x_{ℓ−1}‖/‖x_{ℓ−1}‖)",
    "gradient": "gradient (Euclidean norm of the loss's gradient there)",
}
_OF_SUBLAYER: Final[Mapping[str, str]] = {
    "input rms": "input rms (of what its first matrix sees)",
    "update ratio": "update ratio (rms of the update over rms of the skip, each of all entries, so that one massive "
    "token can rule it)",
    "median update ratio": "median update ratio (‖update‖/‖skip‖ of the median token)",
    "alignment": "alignment (cosine of update and skip)",
    "bf16 lost": "bf16 lost (share of the median token's update)",
    "logit max": "logit max (largest of its heads)",
}


def columns_say(columns: Iterable[str]) -> str:
    """Say what the columns of the table by layer are."""
    has = {*columns}
    each = [
        (what, [words for name, words in said.items() if name in has])
        for what, said in (("Of the stream after the sub-layer", _OF_STREAM), ("Of the sub-layer", _OF_SUBLAYER))
    ]
    return " ".join(f"{what}: {listed(words)}." for what, words in each if words)


#: What all of them are.
COLUMNS_SAY: Final = columns_say([*_OF_STREAM, *_OF_SUBLAYER])

#: What the table calls the text that is used where none is given.
_DOCUMENTATION: Final = "text:pydoc"
_ORDER: Final = ("embed", *OF_BLOCK)


@dataclass(frozen=True)
class Inspection:
    """What :func:`~normlab.inspection.inspect` found.

    Attributes:
        name: the model, as the user named it.
        architecture: what it is made of.
        table: the measurements, as a recorder gives them, and those of the inspection.
        findings: what was looked for, found or not.
        loss: the value of the loss.
        loss_says: what the loss is.
        backward: whether gradients were taken.
        dtype: of the weights.
        data: what the batch is, as columns of the table.
        seed: of the places of the windows in the text.
        versions: of the packages that the numbers depend on.
        notes: what should be known about how the model was loaded.
        outcomes: what became of the conditions that it was to meet.
        look: what was seen beside the recorder.
    """

    name: str
    architecture: Architecture
    table: pd.DataFrame
    findings: tuple[Finding, ...]
    loss: float
    loss_says: str
    backward: bool
    dtype: str
    data: Mapping[str, object]
    seed: int
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    look: Look = field(default_factory=Look, repr=False)

    @property
    def short_name(self) -> str:
        """The model's name; of a path its last two parts."""
        return "/".join(PurePath(self.name).parts[-2:])

    @property
    def given(self) -> str:
        """What the batch is, in words."""
        batch, tokens = (int(str(self.data[name])) for name in ("batch", "tokens"))
        text = "the documentation of Python" if self.data["data"] == _DOCUMENTATION else self.data["data"]
        return f"{counted(batch, 'sequence')} of {counted(tokens, 'token')} of {text}"

    @property
    def loss_words(self) -> str:
        """The value of the loss, in words."""
        return f"loss {number(self.loss)}" if math.isfinite(self.loss) else "the loss is not finite"

    def meeting(self, conditions: Iterable[Condition]) -> "Inspection":
        """Return the inspection with what became of conditions."""
        return replace(self, outcomes=tuple(outcome(condition, self.table) for condition in conditions))

    @property
    def layers(self) -> pd.DataFrame:
        """A row for each sub-layer, with what people look at first; NaN where there is no value."""
        return by_layer(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the table as plain values for JSON; numbers that are not finite are null."""
        rows = self.layers.to_dict("records")
        return {
            "model": self.name,
            "architecture": self.architecture.to_dict(),
            "loss": plain(self.loss),
            "loss_says": self.loss_says,
            "backward": self.backward,
            "dtype": self.dtype,
            "data": dict(self.data),
            "seed": self.seed,
            "versions": dict(self.versions),
            "notes": list(self.notes),
            "findings": [finding.to_dict() for finding in self.findings],
            "assertions": [one.to_dict() for one in self.outcomes],
            "layers": [{str(name): _value(value) for name, value in row.items()} for row in rows],
        }

    @property
    def says(self) -> str:
        """What was seen, in words: a line for each finding; ``!`` marks those that passed their thresholds."""
        lines = [f"{self.name}: {self.given}, {self.dtype}; {self.loss_words} ({self.loss_says})", *self.notes, ""]
        lines += [str(self.architecture), ""]
        lines += [f"{one.mark} {one.topic.capitalize()}. {one.says}" for one in self.findings]
        return "\n".join(lines)

    @property
    def thresholds(self) -> str:
        """What has to be so for a finding to be marked with ``!``, a line for each."""
        lines = [f"{one.mark} {one.topic}: {one.threshold}" for one in self.findings]
        return "\n".join(["! marks what passed its threshold, · what did not. The thresholds:", *lines])

    def __str__(self) -> str:
        return f"{self.says}\n\n{self.thresholds}"


def by_layer(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each sub-layer of each stack, with the columns that people look at first."""
    rows = table[table["layer"].notna() & table["sublayer"].isin(_ORDER)]
    # A block that has several sub-layers of a kind numbers them, as in "attn 2".
    sublayer, name = rows["sublayer"].astype(str), rows["name"].astype(str)
    numbered = name.str.fullmatch(rf"(?:{'|'.join(OF_BLOCK)}) \d+")
    keys = pd.DataFrame(
        {
            "stack": rows["stack"].astype(str),
            "layer": rows["layer"].astype(int),
            "sublayer": sublayer.where(~numbered, name),
        }
    )
    frame = keys.drop_duplicates()
    turn = frame["sublayer"].str.extract(r" (\d+)$", expand=False).fillna("1").astype(int)
    kind = frame["sublayer"].str.partition(" ")[0].map({name: rank for rank, name in enumerate(_ORDER)})
    # An encoder runs before the decoder that reads it.
    decodes = frame["stack"].str.startswith("decoder")
    frame = frame.assign(turn=turn, kind=kind, decodes=decodes)
    frame = frame.sort_values(["decodes", "stack", "layer", "turn", "kind"], kind="stable")[
        ["stack", "layer", "sublayer"]
    ]
    frame = frame.reset_index(drop=True)
    places = list(frame.itertuples(index=False, name=None))
    for heading, site, quantity, role in COLUMNS:
        own = (rows["site"] == site) & (rows["quantity"] == quantity) & (rows["role"] == role)
        # Heads have a row each: the largest stands for them.
        groups = [keys[column][own] for column in ("stack", "layer", "sublayer")]
        found = rows["value"][own].groupby(groups).max().to_dict()
        if found and pd.notna(list(found.values())).any():
            frame[heading] = [found.get(place, float("nan")) for place in places]
    return frame


def _value(value: object) -> object:
    return plain(value) if isinstance(value, float) else int(value) if hasattr(value, "__index__") else value
