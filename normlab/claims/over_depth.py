"""What claims share: choosing rows, curves over depth, and the gaps of a table."""

import numpy as np
import pandas as pd

from normlab.claims.claim import Gap
from normlab.fits import Curves, curves
from normlab.fits.intervals import Floats

#: A slope over depth needs this many depths.
FEWEST_DEPTHS = 3

#: The gradient of the last block: Xiong et al.'s ‖∂L/∂W²,ᴸ‖.
LAST_GRADIENT = "quantity == 'grad_norm' and role == 'down' and sublayer == 'mlp' and layer == depth"
#: The mean square of the stream that leaves the last block.
LAST_STREAM = "quantity == 'mean_square' and site == 'stream' and sublayer == 'mlp' and layer == depth"


def over_depth(rows: pd.DataFrame, quantity: str, what: str) -> Curves:
    """Return the quantity against depth, one curve a seed, over the depths that the seeds share.

    Raises:
        Gap: too few depths or no seed.
    """
    chosen = rows[rows["quantity"] == quantity]
    if chosen.empty:
        raise Gap(f"the table has no rows of {what}")
    found = curves(chosen, quantity, x="depth").positive().balanced()
    if not len(found.seeds) or len(found.x) < FEWEST_DEPTHS:
        have = ", ".join(f"{depth:g}" for depth in found.x) or "none"
        raise Gap(f"{what}: {FEWEST_DEPTHS} depths are needed and {len(found.x)} can be used ({have})")
    return found


def common(first: Curves, second: Curves) -> tuple[Floats, tuple[int, ...], Floats, Floats]:
    """Return the depths and seeds that both curves have, and both curves there.

    Raises:
        Gap: fewer than :data:`FEWEST_DEPTHS` common depths, or no common seed.
    """
    depths = np.intersect1d(first.x, second.x)
    seeds = tuple(seed for seed in first.seeds if seed in second.seeds)
    if len(depths) < FEWEST_DEPTHS or not seeds:
        raise Gap(
            f"{first.y_name} and {second.y_name} share {len(depths)} depths and {len(seeds)} seeds: "
            f"{FEWEST_DEPTHS} depths and the same seeds are needed"
        )
    return depths, seeds, _at(first, depths, seeds), _at(second, depths, seeds)


def _at(found: Curves, depths: Floats, seeds: tuple[int, ...]) -> Floats:
    rows = [found.seeds.index(seed) for seed in seeds]
    return np.asarray(found.y[rows][:, np.isin(found.x, depths)])


def whole_numbers(depths: Floats) -> tuple[int, ...]:
    """Return depths as whole numbers."""
    return tuple(int(depth) for depth in depths)
