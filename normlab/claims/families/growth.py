"""Claims about how the stream grows with depth at initialisation, by placement and recipe."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pandas as pd

from normlab.claims.building import Models, regime, swept
from normlab.claims.claim import Gap, Regime, Sample, Statistic
from normlab.claims.families.norms import B
from normlab.claims.over_depth import over_depth, whole_numbers
from normlab.claims.profiles import MEAN_SQUARE, increments, log_slope, over_layers, profile
from normlab.claims.rules import Above, EqualWithin, Outcome, Rule
from normlab.fits import least_squares_slopes

_FAMILY: Final = "forward"
_PRE: Final = "placement == 'pre' and final_norm == 'on' and init == 'xavier'"
_PRE_WORDS: Final = "Xavier initialisation and the final norm on"
LADDER: Final = [4, 8, 16, 32, 64]


def grid(**axes: Any) -> dict[str, Any]:
    """Return axes of a grid of ReLU models; every value is a list."""
    filled = {"activation": "relu"} | axes
    return {name: value if isinstance(value, list) else [value] for name, value in filled.items()}


def stream_statistic(estimator: str, unit: str, sample: Callable[[pd.DataFrame], Sample]) -> Statistic:
    """Return a statistic of the stream's mean square."""
    return Statistic(estimator, unit, MEAN_SQUARE, sample)


def last_on_depth(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope of ln q_L, the stream after the last block, on ln L.

    Raises:
        Gap: too few depths.
    """
    last = rows[(rows["layer"] == rows["depth"]).fillna(False)]
    found = over_depth(last, "mean_square", "mean_square of the stream after the last block")
    slopes = least_squares_slopes(np.log(found.x), np.log(found.y))
    return Sample(slopes, whole_numbers(found.x), found.left_out)


LAST_ON_DEPTH: Final = stream_statistic(
    "slope of ln q_L, mean_square at site stream after block L, on ln L", "slope", last_on_depth
)


NONE: Final = Models(f"{_PRE} and attention == 'none'", f"Pre-LN models without attention, with {_PRE_WORDS}")
FULL: Final = Models(
    f"{_PRE} and attention == 'softmax' and kind == 'decoder'",
    f"Pre-LN decoders with softmax attention, {_PRE_WORDS}",
)

WITHOUT_FINAL_NORM: Final = Models(
    "placement == 'pre' and final_norm == 'off' and init == 'xavier' and attention == 'softmax'",
    "Pre-LN models with softmax attention, Xavier initialisation and the final norm off",
)

_RMS_SLOPE = stream_statistic(
    "half the slope of ln mean_square at site stream on ln ℓ, in the deepest models", "exponent of rms",
    profile("mean_square", lambda found: log_slope(found) / 2, first=1),
)  # fmt: skip
_RMS_EXPONENT = stream_statistic(
    "(1 + p)/2 with p the exponent of the increments of mean_square at site stream, in the deepest models",
    "exponent of rms",
    profile("mean_square", lambda found: (1 + increments(found)) / 2),
)

swept(
    "sqrt-depth-growth",
    _FAMILY,
    (
        regime("raw log-log slope, without attention", _RMS_SLOPE, EqualWithin(0.5, 0.05), "refuted", among=NONE),
        regime("with an offset, without attention", _RMS_EXPONENT, EqualWithin(0.5, 0.075), among=NONE),
        regime("with an offset, full block", _RMS_EXPONENT, EqualWithin(0.5, 0.075), "refuted", among=FULL),
    ),
    (grid(placement="pre", attention=["none", "softmax"], depth=64),),
    statement="A Pre-LN stream is a random walk: after ℓ blocks its amplitude is proportional to √ℓ.",
    source=B,
    refuted_by="an exponent of the rms outside 0.5 ± 0.05 (raw) or ± 0.075 (with an offset)",
    right="The mean square has an offset, the embedding's: q_ℓ = q₀ + ℓv. So the raw log-log slope stays below ½ "
    "over any "
    "depth in use; without attention the exponent beyond the offset is ½, and in a full block it is larger, because "
    "increments rise while tokens align.",
    plot="stream_growth",
)


def from_12_to_80(rows: pd.DataFrame) -> Sample:
    """Return each seed's rms(80)/rms(12) within a model of 80 blocks.

    Raises:
        Gap: no model has 80 blocks.
    """
    deep = rows[rows["depth"] == 80]
    if deep.empty:
        raise Gap("the table has no models of 80 blocks")
    found = over_layers(deep, "mean_square", 1)
    twelve, eighty = (found.y[:, int(np.argmax(found.x == block))] for block in (12, 80))
    return Sample(np.sqrt(eighty / twelve), (80,), found.left_out)


RATIO = stream_statistic("rms of the stream after block 80 over that after block 12, in models of 80 blocks", "ratio",
                 from_12_to_80)  # fmt: skip

swept(
    "lns-log-growth",
    _FAMILY,
    tuple(
        regime(
            name,
            stream_statistic("exponent of the increments of mean_square at site stream against ℓ", "exponent",
                    profile("mean_square", increments)),
            Above(-0.15),
            "refuted",
            query=f"placement == 'lns' and attention == '{attention}'",
            models=f"LNS models with attention='{attention}'",
        )
        for name, attention in (("without attention", "none"), ("full block", "softmax"))
    ),
    (grid(placement="lns", attention=["none", "softmax"], depth=64),),
    statement="With LayerNorm Scaling the stream's variance grows at least linearly in depth, Θ(L).",
    source="Sun et al. 2025, arXiv 2502.05795, lemma 4.1",
    refuted_by="increments that fall along the stack",
    right="At initialisation block ℓ adds v/ℓ: the variance grows like ln L, below the stated lower bound. A linear "
    "growth needs updates that align with the stream, as training makes them.",
    plot="stream_growth",
)  # fmt: skip


def on_depth(name: str, among: Models, rule: Rule, expected: Outcome = "supported") -> Regime:
    """Return the regime that judges the slope of ln q_L on ln L."""
    return regime(name, LAST_ON_DEPTH, rule, expected, among=among)


_SCALED = "placement == 'completep' and final_norm == 'off' and placement_options == 'alpha={alpha}'"
BRANCH: Final = {
    alpha: Models(_SCALED.format(alpha=alpha), f"CompleteP models with α = {alpha} and the final norm off")
    for alpha in ("0.5", "1.0")
}
_BRANCH_GRID = tuple(
    grid(placement="completep", placement_options=[(("alpha", alpha),)], final_norm=False, depth=[8, 16, 32])
    for alpha in (0.5, 1)
)

swept(
    "branch-scale-bounded",
    _FAMILY,
    (
        on_depth("branches times 1/√L", BRANCH["0.5"], EqualWithin(0, 0.1)),
        on_depth("branches times 1/L", BRANCH["1.0"], EqualWithin(0, 0.1)),
    ),
    _BRANCH_GRID,
    statement="Branches scaled by L^−½ (depth-μP) or L^−1 (CompleteP) keep the stream's scale independent of depth.",
    source="Yang et al. 2023, arXiv 2310.02244; Dey et al. 2025, arXiv 2505.01618",
    refuted_by="a log-log slope of q_L on L outside ± 0.1",
    right="As stated: q_L/q₀ tends to a constant above 1 for ½, and to 1 for 1.",
    plot="stream_growth",
    together="parts",
)
swept(
    "scaled-init-bounded",
    _FAMILY,
    (
        on_depth(
            "GPT-2's scaled initialisation",
            Models(
                "placement == 'pre' and final_norm == 'on' and init == 'gpt2-scaled'",
                "Pre-LN models with GPT-2's scaled initialisation and the final norm on",
            ),
            EqualWithin(0, 0.1),
        ),
    ),
    (grid(placement="pre", init="gpt2-scaled", depth=[8, 16, 32]),),
    statement="Output projections that start 1/√(2L) smaller keep the stream's scale independent of depth.",
    source="Radford et al. 2019 (GPT-2)",
    refuted_by="a log-log slope of q_L on L outside ± 0.1",
    right="As stated, at initialisation.",
    plot="stream_growth",
)
swept(
    "final-norm-is-default-not-theorem",
    _FAMILY,
    (
        on_depth("no final norm, branches times 1/√L", BRANCH["0.5"], EqualWithin(0, 0.1)),
        on_depth(
            "no final norm, plain branches",
            WITHOUT_FINAL_NORM,
            EqualWithin(0, 0.1),
            "refuted",
        ),
    ),
    (_BRANCH_GRID[0], grid(placement="pre", final_norm=False, depth=LADDER)),
    statement="The final norm is a default, not a necessity: the head also gets a controlled scale without one.",
    source=B,
    refuted_by="a stream at the head whose scale grows with depth",
    right="True where something else bounds the stream, such as branches scaled by 1/√L; with plain branches the head "
    "sees a scale that grows with depth. Whether training then fails is another question.",
    plot="stream_growth",
)
