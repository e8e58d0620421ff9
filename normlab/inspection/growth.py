"""How the stream grows from block to block, with and without its most massive tokens."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from normlab.errors import counted
from normlab.fits import LAWS, GrowthLaw, growth_law
from normlab.inspection.finding import Finding, blocks, number, of_stack
from normlab.inspection.looking import Look

#: The stream is said to grow (or shrink) if the rms of its tokens differs more than this between two blocks.
GROWS: Final = 10.0
#: A stream whose mean square stays within this ratio has no law.
FLAT: Final = 1.5
_FEWEST: Final = 4


def growth(look: Look) -> list[Finding]:
    """Return a finding for each stack."""
    stacks = list(dict.fromkeys(address.stack for address in look.streams))
    return [_of_stack(look, stack, stacks) for stack in stacks]


def _of_stack(look: Look, stack: str, stacks: Sequence[str]) -> Finding:
    ends = {at.layer: one for at, one in look.streams.items() if at.stack == stack and at.layer}
    layers = [layer for layer in ends if layer is not None]
    every = [ends[layer].mean_square for layer in layers]
    bulk = [ends[layer].bulk_mean_square for layer in layers]
    top = max((one.top_share for one in ends.values() if one.top_share == one.top_share), default=float("nan"))
    low, high = _extremes(layers, bulk)
    ratio = _ratio(layers, bulk, low, high)
    laws = {"all tokens": _law(layers, every), "without the most massive tokens": _law(layers, bulk)}
    said = zip(laws.items(), (every, bulk), strict=True)
    words = "; ".join(f"{name}, {_words(law, values)}" for (name, law), values in said)
    reach = f"from block {layers[0]} to block {layers[-1]}" if len(layers) > 1 else f"after {blocks(layers)}"
    says = f"Mean square q of the stream{of_stack(stack, stacks)} {reach}: {words}."
    if ratio > FLAT**0.5 and {low, high} - {layers[0], layers[-1]}:
        says += f" Without them it is least after block {low} and largest after block {high}: {_times(ratio)} in rms."
    if top == top:
        share = math.floor(1000 * top) / 10  # 100 % is said of all of it only
        says += f" The most massive token of each sequence holds up to {share:g} % of the stream's energy."
    present = min(one.finite + one.nonfinite for one in ends.values())
    if present < look.tokens:
        says += f" The stream has {counted(present, 'token')}, and the batch {look.tokens}."
    if broken := [layer for layer in layers if ends[layer].nonfinite]:
        says += f" After {blocks(broken)} tokens with entries that are not finite are left out."
    return Finding(
        "growth of the stream",
        ratio > GROWS,
        says,
        f"rms without the most massive token of each sequence differs more than {GROWS:g}-fold between two blocks",
        {
            "stack": stack,
            "layers": layers,
            "mean_square": every,
            "bulk_mean_square": bulk,
            "rms_ratio_without_massive": ratio,
            "least_after": low,
            "largest_after": high,
            "largest_top_token_share": top,
            "laws": {name: _numbers(law) for name, law in laws.items()},
        },
    )


def _extremes(layers: Sequence[int], values: Sequence[float]) -> tuple[int | None, int | None]:
    """Return the blocks after which the value is least and largest; the first of equals."""
    known = {layer: value for layer, value in zip(layers, values, strict=True) if math.isfinite(value)}
    return min(known, key=known.__getitem__, default=None), max(known, key=known.__getitem__, default=None)


def _ratio(layers: Sequence[int], values: Sequence[float], low: int | None, high: int | None) -> float:
    """Return the ratio of the rms after two blocks, of which the values are mean squares."""
    if low is None or high is None:
        return math.nan
    least, most = values[layers.index(low)], values[layers.index(high)]
    return math.sqrt(most / least) if least > 0 else math.inf if most > 0 else 1.0


def _times(ratio: float) -> str:
    return f"{number(ratio)}-fold" if math.isfinite(ratio) else "from zero"


def _law(layers: Sequence[int], values: Sequence[float]) -> GrowthLaw | None:
    usable = [(layer, value) for layer, value in zip(layers, values, strict=True) if np.isfinite(value) and value > 0]
    if len(usable) < _FEWEST:
        return None
    x, y = zip(*usable, strict=True)
    return growth_law((x, y)) if max(y) > FLAT * min(y) else None


def _words(law: GrowthLaw | None, values: Sequence[float]) -> str:
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return "it has no finite value"
    if len(known) == 1:
        return f"it is {number(known[0])}"
    # Blocks without a finite value are named apart.
    ends = f"it goes from {number(known[0])} to {number(known[-1])}"
    if max(known) <= FLAT * min(known):
        least, most = number(min(known)), number(max(known))
        return f"it stays at {least}" if least == most else f"it stays between {least} and {most}"
    if law is None:
        return f"{ends}, too few blocks for a law"
    if law.poor:
        typical = f"{100 * law.error:.0f} %"
        return f"{ends} by no law of two parameters (the nearest, {law.law}, has a typical error of {typical})"
    ranking = sorted(law.delta_aic, key=law.delta_aic.__getitem__)
    return (
        f"{ends}, and the nearest law is {law.law}, {_with_numbers(law)} (typical error {100 * law.error:.0f} %; "
        f"next: {ranking[1]}, ΔAIC {law.delta_aic[ranking[1]]:.1f})"
    )


def _with_numbers(law: GrowthLaw) -> str:
    formula = law.formula.replace("y", "q", 1).replace("a", number(law.a), 1)
    return formula.replace("b·", f"{number(law.b)}·").replace("+ −", "− ")


def _numbers(law: GrowthLaw | None) -> dict[str, Any] | None:
    if law is None:
        return None
    return {"law": law.law, "formula": LAWS[law.law].formula, "a": law.a, "b": law.b, "delta_aic": dict(law.delta_aic)}
