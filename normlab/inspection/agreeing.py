"""How near to 1 the ratios of two tables are, by what they are of."""

import math
from collections.abc import Mapping
from typing import Final

import pandas as pd

from normlab.digits import NEAR, deviation, minus, number

#: What the ratios at each site are of.
_OF_SITE: Final[Mapping[str, str]] = {
    "stream": "the streams' median rms",
    "stream_grad": "the gradients at the streams",
    "input": "the inputs' rms",
    "update": "the update ratios",
    "branch": "the branches' rms",
    "": "the gradients of parameters other than biases",
}
_ELSEWHERE: Final = "the gradients at other sites"
#: The streams themselves.
STREAMS: Final = _OF_SITE["stream"]


def spans(table: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest ratio B over A of each kind of number, in words."""
    # The gradient of the keys' bias is zero up to rounding, so that its ratio says nothing.
    bias = table["role"].astype(str).str.endswith("_bias")
    rows = table[(table["quantity"].astype(str) == "ratio") & ~bias]
    kinds = rows["site"].astype(str).map(lambda site: _OF_SITE.get(site, _ELSEWHERE))
    found = rows["value"].astype(float).groupby(kinds).agg(["min", "max"])
    order = [*_OF_SITE.values(), _ELSEWHERE]
    return {kind: (float(found["min"][kind]), float(found["max"][kind])) for kind in order if kind in found.index}


def off_by(span: tuple[float, float]) -> float:
    """Return by which share the ratio that is farthest from 1 is above it, or 1 above that ratio."""
    return math.expm1(max(abs(math.log(ratio)) for ratio in span))


def span_words(span: tuple[float, float]) -> str:
    """Say between which limits ratios lie."""
    share = off_by(span)
    if not share:
        return "the same"
    if share < NEAR:
        return f"the same within {percent(share)}"
    low, high = (number(ratio) for ratio in span)
    return low if low == high else f"{low} to {high}"


def times(ratio: float) -> str:
    """Say how many times something is something else, or by what share it differs from that."""
    near = ratio != 1 and abs(ratio - 1) < NEAR
    return f"differs by {deviation(ratio)} from" if near else f"is {number(ratio)} times"


def told_apart(*values: float) -> tuple[str, ...]:
    """Return two numbers with as many digits as it takes to see that they differ, and one more."""
    said = tuple(number(value) if math.isfinite(value) else "not finite" for value in values)
    if len({*said}) > 1 or len({*values}) == 1 or not all(map(math.isfinite, values)):
        return said
    for digits in range(4, 18):
        said = tuple(minus(f"{value:.{digits}g}") for value in values)
        if len({*said}) > 1:
            return tuple(minus(f"{value:.{digits + 1}g}") for value in values)
    return said


def percent(share: float) -> str:
    """Return a share as a percentage."""
    hundredths = 100 * share
    return (
        minus(f"{hundredths:.2g} %") if hundredths < 99.5 else f"{hundredths:.{'0f' if hundredths < 1e5 else '2e'}} %"
    )
