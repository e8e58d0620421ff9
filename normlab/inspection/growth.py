"""How the stream grows from block to block, with and without its most massive tokens."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from normlab.digits import number
from normlab.errors import counted
from normlab.fits import LAWS, GrowthLaw, growth_law, left_out
from normlab.fits.intervals import Floats
from normlab.inspection.finding import Finding, blocks, of_stack
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
    words = "; ".join(f"{name}, {_words(law, layers, values)}" for (name, law), values in said)
    reach = f"from block {layers[0]} to block {layers[-1]}" if len(layers) > 1 else f"after {blocks(layers)}"
    says = f"Mean square q of the stream{of_stack(stack, stacks)} {reach}: {words}."
    if low is not None and high is not None and ratio > FLAT**0.5:
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
            "laws": {
                name: _numbers(law, layers, values)
                for (name, law), values in zip(laws.items(), (every, bulk), strict=True)
            },
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
    x, y = _usable(layers, values)
    return growth_law((x, y)) if len(x) >= _FEWEST and y.max() > FLAT * y.min() else None


def _usable(layers: Sequence[int], values: Sequence[float]) -> tuple[Floats, Floats]:
    """Return the blocks and the values of those that have a logarithm."""
    x, y = np.asarray(layers, dtype=np.float64), np.asarray(values, dtype=np.float64)
    kept = np.isfinite(y) & (y > 0)
    return x[kept], y[kept]


def _words(law: GrowthLaw | None, layers: Sequence[int], values: Sequence[float]) -> str:
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
    off = f"typically off by a factor of {1 + law.error:.2f}, {_farthest_words(*_farthest(law, layers, values))}"
    if law.poor:
        return f"{ends} by no law of two parameters (the nearest, {law.law}, {_with_numbers(law)}: {off})"
    ranking = sorted(law.delta_aic, key=law.delta_aic.__getitem__)
    (a_low, a_high), (b_low, b_high) = _ranges(law, layers, values)
    return (
        f"{ends}, and the nearest law is {law.law}, {_with_numbers(law)} (with any one block left out a is "
        f"{_span(a_low, a_high)} and b {_span(b_low, b_high)}; {off}; next: {ranking[1]}, "
        f"ΔAIC {law.delta_aic[ranking[1]]:.1f})"
    )


def _ranges(
    law: GrowthLaw, layers: Sequence[int], values: Sequence[float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return between which limits a and b lie if any one block is left out.

    Blocks of one network are a cumulated sum: the error that least squares would give takes them for independent.
    """
    a, b = left_out(LAWS[law.law], *_usable(layers, values))
    return (float(a.min()), float(a.max())), (float(b.min()), float(b.max()))


def _span(low: float, high: float) -> str:
    return number(low) if number(low) == number(high) else f"{number(low)} to {number(high)}"


def _farthest(law: GrowthLaw, layers: Sequence[int], values: Sequence[float]) -> tuple[int, float]:
    """Return the block whose value is farthest from the law by its logarithm, and the value over the law's there."""
    x, y = _usable(layers, values)
    ratio = y / law.predict(x)
    most = int(np.abs(np.log(ratio)).argmax())
    return int(x[most]), float(ratio[most])


def _farthest_words(layer: int, ratio: float) -> str:
    if abs(ratio - 1) < 0.005:
        return "and no block is farther off"
    return f"farthest off after block {layer}, {number(ratio)} times the law's"


def _with_numbers(law: GrowthLaw) -> str:
    formula = law.formula.replace("y", "q", 1).replace("a", number(law.a), 1)
    return formula.replace("b·", f"{number(law.b)}·").replace("+ −", "− ")


def _numbers(law: GrowthLaw | None, layers: Sequence[int], values: Sequence[float]) -> dict[str, Any] | None:
    if law is None:
        return None
    (a, b), (layer, ratio) = _ranges(law, layers, values), _farthest(law, layers, values)
    return {
        "law": law.law,
        "formula": LAWS[law.law].formula,
        "a": law.a,
        "b": law.b,
        "a_with_one_block_left_out": list(a),
        "b_with_one_block_left_out": list(b),
        "typical_factor": 1 + law.error,
        "farthest_after": layer,
        "farthest_over_law": ratio,
        "delta_aic": dict(law.delta_aic),
    }
