"""How the stream grows from block to block, with and without its most massive tokens."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from normlab.fits import LAWS, GrowthLaw, growth_law
from normlab.inspection.finding import Finding, number
from normlab.inspection.looking import Look

#: The stream is said to grow (or shrink) if the rms of its tokens changes more than this from block 1 to the last.
GROWS: Final = 10.0
#: A stream whose mean square stays within this ratio has no law.
FLAT: Final = 1.5
#: A law whose typical relative error is larger than this describes nothing.
POOR: Final = 0.25
_FEWEST: Final = 4


def growth(look: Look) -> list[Finding]:
    """Return a finding for each stack."""
    stacks = list(dict.fromkeys(address.stack for address in look.streams))
    return [_of_stack(look, stack, len(stacks) > 1) for stack in stacks]


def _of_stack(look: Look, stack: str, named: bool) -> Finding:
    ends = {at.layer: one for at, one in look.streams.items() if at.stack == stack and at.layer}
    layers = [layer for layer in ends if layer is not None]
    every = [ends[layer].mean_square for layer in layers]
    bulk = [ends[layer].bulk_mean_square for layer in layers]
    top = max((one.top_share for one in ends.values() if one.top_share == one.top_share), default=float("nan"))
    factor = (bulk[-1] / bulk[0]) ** 0.5 if bulk and bulk[0] > 0 else float("nan")
    laws = {"all tokens": _law(layers, every), "without the most massive tokens": _law(layers, bulk)}
    said = zip(laws.items(), (every, bulk), strict=True)
    words = "; ".join(f"{name}, {_words(law, layers, values)}" for (name, law), values in said)
    where = f" of the {stack}" if named else ""
    says = f"Mean square q of the stream{where} from block {layers[0]} to block {layers[-1]}: {words}."
    if top == top:
        says += f" The most massive token of each sequence holds up to {100 * top:.0f} % of the stream's energy."
    return Finding(
        "growth of the stream",
        bool(factor > GROWS or factor < 1 / GROWS),
        says,
        f"rms without the most massive token of each sequence changes more than {GROWS:g}-fold",
        {
            "stack": stack,
            "layers": layers,
            "mean_square": every,
            "bulk_mean_square": bulk,
            "rms_factor_without_massive": factor,
            "largest_top_token_share": top,
            "laws": {name: _numbers(law) for name, law in laws.items()},
        },
    )


def _law(layers: Sequence[int], values: Sequence[float]) -> GrowthLaw | None:
    usable = [(layer, value) for layer, value in zip(layers, values, strict=True) if np.isfinite(value) and value > 0]
    if len(usable) < _FEWEST:
        return None
    x, y = zip(*usable, strict=True)
    return growth_law((x, y)) if max(y) > FLAT * min(y) else None


def _words(law: GrowthLaw | None, layers: Sequence[int], values: Sequence[float]) -> str:
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return "it has no finite value"
    if law is None:
        if len(known) < _FEWEST:
            return f"it goes from {number(values[0])} to {number(values[-1])}, too few blocks for a law"
        return f"it stays between {number(min(known))} and {number(max(known))}"
    error, ends = _error(law, layers, values), f"it goes from {number(values[0])} to {number(values[-1])}"
    if error > POOR:
        return (
            f"{ends} by no law of two parameters (the nearest, {law.law}, has a typical error of {100 * error:.0f} %)"
        )
    ranking = sorted(law.delta_aic, key=law.delta_aic.__getitem__)
    return (
        f"{ends}, and the nearest law is {law.law}, {_with_numbers(law)} (typical error {100 * error:.0f} %; "
        f"next: {ranking[1]}, ΔAIC {law.delta_aic[ranking[1]]:.1f})"
    )


def _with_numbers(law: GrowthLaw) -> str:
    formula = law.formula.replace("y", "q", 1).replace("a", number(law.a), 1)
    return formula.replace("b·", f"{number(law.b)}·").replace("+ −", "− ")


def _error(law: GrowthLaw, layers: Sequence[int], values: Sequence[float]) -> float:
    """Return the root mean square of the relative residuals."""
    at, y = np.asarray(layers, dtype=float), np.asarray(values)
    kept = np.isfinite(y) & (y > 0)
    residual = (y[kept] - law.predict(at[kept])) / y[kept]
    return float(np.sqrt(np.mean(residual**2)))


def _numbers(law: GrowthLaw | None) -> dict[str, Any] | None:
    if law is None:
        return None
    return {"law": law.law, "formula": LAWS[law.law].formula, "a": law.a, "b": law.b, "delta_aic": dict(law.delta_aic)}
