"""Claims about placements that bound the stream, and about models without norms."""

from typing import Final

import numpy as np
import pandas as pd

from normlab.claims.building import Models, regime, swept
from normlab.claims.claim import Sample
from normlab.claims.families.growth import grid, on_depth, stream_statistic
from normlab.claims.families.norms import B, C
from normlab.claims.profiles import deepest, over_layers
from normlab.claims.rules import Above, EqualWithin, Outcome
from normlab.fits.intervals import Floats

_FAMILY: Final = "forward"

_PERI: Final = Models("placement == 'peri' and init == 'xavier'", "Peri-LN models with Xavier initialisation")
_GAINS: Final = (("down", 4.0), ("o", 4.0))


def unit_steps(rows: pd.DataFrame) -> Sample:
    """Return each seed's (q_L − q_0)/(2L) in the deepest models.

    Raises:
        Gap: the models are too shallow.
    """
    deep = deepest(rows)
    found, depth = over_layers(deep, "mean_square"), int(deep["depth"].max())
    return Sample((found.y[:, -1] - found.y[:, 0]) / (2 * depth), (depth,), found.left_out)


_STEPS = stream_statistic(
    "(q_L − q_0)/(2L) with q the mean_square at site stream, in the deepest models", "share", unit_steps
)

swept(
    "periln-bounds-growth",
    _FAMILY,
    (
        regime("q = q₀ + 2ℓ, Xavier", _STEPS, EqualWithin(1, 0.15), among=_PERI),
        regime("q = q₀ + 2ℓ, output matrices 4 times larger", _STEPS, EqualWithin(1, 0.15),
               query="placement == 'peri' and init == 'fan-in' and init_options == 'down=4.0,o=4.0'",
               models="Peri-LN models with fan-in initialisation and W_o and W_down 4 times larger"),
        on_depth("independent of depth", _PERI, EqualWithin(0, 0.1), "refuted"),
    ),
    (
        grid(placement="peri", depth=[8, 16, 32]),
        grid(placement="peri", init="fan-in", init_options=[_GAINS], depth=32),
    ),
    statement="A norm on what each sub-layer writes bounds the growth of the stream, whatever the scale of the "
    "weights.",
    source=f"{B}; Kim et al. 2025, arXiv 2502.02732",
    refuted_by="a growth that depends on the weights' scale, or on depth",
    right="Each sub-layer adds exactly 1 to the mean square, whatever the weights: q = q₀ + 2ℓ. The bound is per "
    "sub-layer; the stream still grows linearly with depth.",
    plot="stream_growth",
    version=2,
)  # fmt: skip


def scale_at_end(rows: pd.DataFrame) -> Sample:
    """Return each seed's ln q_L in the deepest models.

    Raises:
        Gap: the models are too shallow.
    """
    deep = deepest(rows)
    found: Floats = over_layers(deep, "mean_square").y
    return Sample(np.log(found[:, -1]), (int(deep["depth"].max()),))


_AT_END = stream_statistic(
    "ln q_L, mean_square at site stream after the last block, in the deepest models", "log mean square", scale_at_end
)

swept(
    "peri-is-periodic",
    _FAMILY,
    (
        regime("Peri-LN as published", _AT_END, EqualWithin(0, 0.1), "refuted",
               among=_PERI),
        regime("a norm on the stream every 8 blocks", _AT_END, EqualWithin(0, 0.1),
               contrast=True,
               query="placement == 'periodic' and placement_options == 'every=8'",
               models="models with a norm on the stream every 8 blocks"),
    ),
    (
        grid(placement="peri", depth=[8, 16, 32]),
        grid(placement="periodic", placement_options=[(("every", 8),)], depth=32),
    ),
    statement="Peri-LN is periodic: an extra norm on the stream after every N (6 to 8) blocks brings it back to unit "
    "scale.",
    source=C,
    refuted_by="a Peri-LN stream that is not at unit scale after a multiple of N blocks",
    right="Peri means around: one norm before and one after every sub-layer, x + N(F(N(x))); nothing normalizes the "
    "stream, which grows like q₀ + 2ℓ. A norm on the stream every N blocks is another design (Swin v2's extra norm).",
    nature="construction",
    version=2,
    plot="stream_growth",
)  # fmt: skip


def growth_rate(rows: pd.DataFrame) -> Sample:
    """Return each seed's ln(q_L/q_0)/L in the deepest models.

    Raises:
        Gap: the models are too shallow.
    """
    deep = deepest(rows)
    found, depth = over_layers(deep, "mean_square"), int(deep["depth"].max())
    return Sample(np.log(found.y[:, -1] / found.y[:, 0]) / depth, (depth,), found.left_out)


_RECIPES: Final[tuple[tuple[str, Outcome], ...]] = (
    ("xavier", "supported"), ("gpt2-scaled", "refuted"), ("t-fixup", "refuted"), ("fixup", "refuted"),
)  # fmt: skip
swept(
    "no-norm-breaks-beyond-12",
    _FAMILY,
    tuple(
        regime(
            f"initialisation {init}",
            stream_statistic("ln(q_L/q_0)/L, growth of mean_square at site stream per block, in the deepest models",
                             "nats a block", growth_rate),
            Above(0.1),
            expected,
            query=f"placement == 'none' and init == '{init}'",
            models=f"models without norms, initialisation {init}",
        )
        for init, expected in _RECIPES
    ),
    (grid(placement="none", init=[init for init, _ in _RECIPES], depth=32),),
    statement="Without normalization a transformer of more than 12 layers almost surely breaks: the residual branches' "
    "output grows without bound with depth.",
    source=C,
    refuted_by="a recipe under which the stream does not grow exponentially without norms",
    right="It depends on the initialisation: with Xavier the stream grows exponentially, with GPT-2's scaled "
    "initialisation, T-Fixup or Fixup it hardly grows. T-Fixup was trained without norms.",
    ill_posed="at initialisation and without norms the stream's mean square grows by more than 10 % a block.",
    plot="stream_growth",
    version=2,
)  # fmt: skip
