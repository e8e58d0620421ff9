"""The first place where two models or runs part."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from normlab.recording import Address


@dataclass(frozen=True)
class Part:
    """The first place where two streams differ by more than the tolerance.

    Attributes:
        stack: which stream.
        layer: the block; 0 is the embedding.
        sublayer: the sub-layer.
        value: how much they differ there.
        name: which of several sub-layers of a kind, as in ``mlp 2``.
    """

    stack: str
    layer: int
    sublayer: str
    value: float
    name: str = ""

    @property
    def at(self) -> Address:
        """The place."""
        return Address(self.stack, self.layer, self.sublayer, name=self.name)

    def is_at(self, at: Address) -> bool:
        """Say whether this is that place."""
        return self.at == at._replace(site="")


def models_part(streams: pd.DataFrame, added: pd.DataFrame, odd: Iterable[Address], tolerance: float) -> Part | None:
    """Return where two models part.

    That is in the embedding if the streams differ there by more than the tolerance, and in the first block that adds
    more than it on the same input; where that is not known, where the streams differ by more; and where an entry is
    not finite in one and not the same in the other.

    Args:
        streams: how much the streams differ at each place, in order.
        added: how much each block adds.
        odd: the places of such entries.
        tolerance: the tolerance.
    """
    known = {
        (str(row["stack"]), int(row["layer"])): float(row["value"])
        for row in added[added["value"].notna()].to_dict("records")
    }
    others = {(at.stack, at.layer, at.sublayer, at.name) for at in odd}
    for key, own in streams.groupby(["stack", "layer"], observed=True, sort=False):
        stack, layer = cast(tuple[str, int], key)
        names = list(zip(own["sublayer"].astype(str), own["name"].astype(str), strict=True))
        values = own["value"].tolist()
        beyond = [number for number, value in enumerate(values) if value > tolerance]
        if layer and (adds := known.get((str(stack), layer))) is not None:
            beyond = (beyond or [len(values) - 1]) if adds > tolerance else []
        beyond += [number for number, name in enumerate(names) if (str(stack), layer, *name) in others]
        if beyond:
            sublayer, name = names[min(beyond)]
            return Part(str(stack), layer, sublayer, values[min(beyond)], name)
    return None


def runs_part(ratios: pd.DataFrame, tolerance: float) -> Part | None:
    """Return the first place at which the ratio of the streams of two runs is further from 1 than the tolerance."""
    for row in ratios.to_dict("records"):
        if abs(math.log(row["value"])) > math.log1p(tolerance):
            return part_at(row)
    return None


def part_at(row: Any) -> Part:
    """Return the place and the value of a row of the table."""
    return Part(str(row["stack"]), int(row["layer"]), str(row["sublayer"]), float(row["value"]), str(row["name"]))
