"""One number a seed from curves over the layers of one model."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from normlab.claims.claim import Gap, Sample
from normlab.errors import DataError
from normlab.fits import Curves, curves, increments_exponent, least_squares_slopes
from normlab.fits.intervals import Floats

#: Rows of the stream: after every block, and after the embedding.
STREAM = "site == 'stream' and (sublayer == 'mlp' or sublayer == 'embed')"
#: The mean square of the stream.
MEAN_SQUARE = f"quantity == 'mean_square' and {STREAM}"
#: The gradient of every block's W_down.
GRADIENT = "quantity == 'grad_norm' and role == 'down' and sublayer == 'mlp'"
#: The gradient at the stream after every block, and after the embedding.
STREAM_GRADIENT = "quantity == 'l2' and site == 'stream_grad' and (sublayer == 'mlp' or sublayer == 'embed')"

Function = Callable[[Curves], Floats]


def deepest(rows: pd.DataFrame, fewest: int = 8) -> pd.DataFrame:
    """Return the rows of the deepest models.

    Raises:
        Gap: there is none, or they are too shallow.
    """
    if rows.empty:
        raise Gap("the table lacks the rows of the statistic")
    depth = int(rows["depth"].max())
    if depth < fewest:
        raise Gap(f"{fewest} blocks are needed and the deepest model has {depth}")
    return rows[rows["depth"] == depth]


def over_layers(rows: pd.DataFrame, quantity: str, first: int = 0, last: int | None = None) -> Curves:
    """Return a quantity against the block, one curve a seed, of rows of models of one depth.

    Raises:
        Gap: fewer than four blocks, or no seed.
    """
    chosen = rows[(rows["quantity"] == quantity) & (rows["layer"] >= first).fillna(False)]
    if last is not None:
        chosen = chosen[chosen["layer"] <= last]
    if chosen.empty:
        raise Gap(f"the table has no {quantity} of the blocks")
    whole = curves(chosen, quantity, x="layer")
    # Layer 0 has no logarithm and a value: only the values have to be positive.
    positive = np.where(whole.y > 0, whole.y, np.nan)
    found = Curves(whole.x, positive, whole.seeds, whole.x_name, whole.y_name, whole.left_out).balanced()
    if len(found.x) < 4 or not len(found.seeds):
        raise Gap(f"{quantity}: 4 blocks are needed and {len(found.x)} can be used")
    return found


def profile(
    quantity: str, function: Function, *, first: int = 0, last: int | None = None, fewest: int = 8
) -> Callable[[pd.DataFrame], Sample]:
    """Return a statistic's sample: ``function`` of the quantity against the block, in the deepest models."""

    def sample(rows: pd.DataFrame) -> Sample:
        deep = deepest(rows, fewest)
        found = over_layers(deep, quantity, first, last)
        return Sample(np.asarray(function(found)), (int(deep["depth"].max()),), found.left_out)

    return sample


def log_slope(found: Curves) -> Floats:
    """Slope of ln y on ln ℓ."""
    return least_squares_slopes(np.log(found.x), np.log(found.y))


def rate(found: Curves) -> Floats:
    """Slope of ln y on ℓ."""
    return least_squares_slopes(found.x, np.log(found.y))


def increments(found: Curves) -> Floats:
    """Exponent of the increments of y against ℓ.

    Raises:
        Gap: no seed's increments have an exponent.
    """
    try:
        return np.asarray(increments_exponent(found).per_seed)
    except DataError as error:
        raise Gap(str(error)) from error


def log_ratio(found: Curves) -> Floats:
    """Return ln(first/last)."""
    return np.asarray(np.log(found.y[:, 0] / found.y[:, -1]))


def misfit(found: Curves, first: Callable[[Floats], Floats], second: Callable[[Floats], Floats]) -> Floats:
    """Return ln of the ratio of squared residuals of ln y on first(x) to those on second(x): negative, first fits."""
    log_y = np.log(found.y)
    return np.asarray(np.log(_residual(first(found.x), log_y) / _residual(second(found.x), log_y)))


def _residual(x: Floats, y: Floats) -> Floats:
    slope = least_squares_slopes(x, y)
    rest = y - y.mean(axis=1, keepdims=True) - slope[:, None] * (x - x.mean())
    return np.asarray(np.maximum((rest**2).sum(axis=1), 1e-24))


def on_stream(rows: pd.DataFrame, quantity: str, fewest: int = 8) -> Sample:
    """Return each seed's slope of ln of a gradient on ln q_ℓ over the blocks of the deepest models.

    Raises:
        Gap: the models are too shallow, or the two curves share no blocks.
    """
    deep = deepest(rows, fewest)
    gradient, stream = over_layers(deep, quantity, 1), over_layers(deep, "mean_square", 1)
    seeds = [seed for seed in gradient.seeds if seed in stream.seeds]
    blocks = np.intersect1d(gradient.x, stream.x)
    if len(blocks) < 4 or not seeds:
        raise Gap("the gradient and the stream share too few blocks or no seed")
    y, q = (
        np.log(curve.y[[curve.seeds.index(seed) for seed in seeds]][:, np.isin(curve.x, blocks)])
        for curve in (gradient, stream)
    )
    if (np.ptp(q, axis=1) < np.log(2)).any():
        raise Gap("the stream's mean square varies by less than a factor of 2 over the blocks: no slope on it")
    return Sample(least_squares_slopes(q, y), (int(deep["depth"].max()),), gradient.left_out)


def paired(rows: pd.DataFrame, quantity: str, function: Function, first: str, second: str, **options: int) -> Sample:
    """Return each seed's difference of ``function`` between two placements, ``first`` − ``second``.

    Raises:
        Gap: a placement is missing, or the two share no seed.
    """
    found = {}
    for placement in (first, second):
        of_one = rows[rows["placement"] == placement]
        if of_one.empty:
            raise Gap(f"the table has no {placement} models that otherwise equal these")
        deep = deepest(of_one)
        found[placement] = over_layers(deep, quantity, options.get("start", 1))
    seeds = [seed for seed in found[first].seeds if seed in found[second].seeds]
    if not seeds:
        raise Gap(f"{first} and {second} share no seed")
    values = [np.asarray(function(curve))[[curve.seeds.index(seed) for seed in seeds]] for curve in found.values()]
    return Sample(values[0] - values[1], (int(rows["depth"].max()),))
