"""Claims about the forward pass at initialisation."""

import numpy as np
import pandas as pd

from normlab.claims.claim import Claim, Design, Gap, Regime, Sample, Statistic, register_claim
from normlab.claims.rules import ZeroWithin
from normlab.errors import DataError
from normlab.fits import increments_exponent

#: An exponent over layers needs this many blocks.
FEWEST_BLOCKS = 8


def stream_increments(rows: pd.DataFrame) -> Sample:
    """Return each seed's exponent of the stream's increments against the block, in the deepest models.

    Raises:
        Gap: no rows, or the deepest models are too shallow.
    """
    if rows.empty:
        raise Gap("the table has no mean_square of the stream")
    depth = int(rows["depth"].max())
    if depth < FEWEST_BLOCKS:
        raise Gap(f"{FEWEST_BLOCKS} blocks are needed and the deepest model has {depth}")
    try:
        fit = increments_exponent(rows[rows["depth"] == depth], "mean_square", x="layer")
    except DataError as error:
        raise Gap(f"depth {depth}: {error}") from error
    return Sample(np.array(fit.per_seed), (depth,), fit.left_out)


_STATISTIC = Statistic(
    estimator="exponent of the increments per block of mean_square at site stream (mlp rows, from layer 0) "
    "against the block, in the deepest models: quasi-Poisson fit in each seed",
    unit="exponent",
    query="quantity == 'mean_square' and site == 'stream' and (sublayer == 'mlp' or sublayer == 'embed')",
    sample=stream_increments,
)
_PRE = "placement == 'pre' and norm in ('layernorm', 'rmsnorm') and kind != 'encoder-decoder'"

register_claim(
    Claim(
        id="preln-variance-linear-in-depth",
        version=1,
        family="forward",
        statement="In a Pre-LN transformer at initialisation every block adds about the same to the residual "
        "stream's mean square, which grows linearly with depth, so that its amplitude grows like √ℓ.",
        source="Xiong et al. 2020, arXiv 2002.04745, lemma 2; repeated in expositions of Pre-LN",
        nature="law",
        regimes=(
            Regime(
                name="without attention",
                query=f"{_PRE} and attention == 'none'",
                models="Pre-LN models (LayerNorm or RMSNorm, no encoder-decoder) without attention",
                statistic=_STATISTIC,
                rule=ZeroWithin(margin=0.15),
                expected="supported",
            ),
            Regime(
                name="full block",
                query=f"{_PRE} and attention != 'none' and tokens >= 64",
                models="Pre-LN models (LayerNorm or RMSNorm, no encoder-decoder) with attention on at least 64 tokens",
                statistic=_STATISTIC,
                rule=ZeroWithin(margin=0.15),
                expected="refuted",
            ),
        ),
        refuted_by="increments that rise or fall along the stack: an interval of their exponent that excludes 0 "
        "and does not lie within ± 0.15",
        right_statement="Without attention the increments are flat and q_ℓ = q₀ + ℓv. In a full block they rise "
        "while tokens align, from the value for unlike tokens toward the value for equal ones, so that q is not "
        "linear over the depths in use.",
        plot="stream_growth",
        design=Design(
            grids=tuple(
                {"placement": ["pre"], "activation": ["relu"], "attention": [attention], "depth": [64]}
                for attention in ("none", "softmax")
            ),
        ),
    )
)
