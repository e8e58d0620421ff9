"""Exact statements about norms with statistics over a batch."""

from typing import Final

import numpy as np
import pandas as pd

from normlab.claims.building import against, exact, number, regime, trend
from normlab.claims.claim import Sample, Statistic
from normlab.claims.exactness import AtLeast, AtMost
from normlab.claims.families.norms import A, B, C
from normlab.claims.rules import Above, EqualWithin
from normlab.fits import least_squares_slopes

_FAMILY: Final = "exact: batch statistics"
_PER_TOKEN = (("LayerNorm", "layernorm"), ("RMSNorm", "rmsnorm"), ("GroupNorm of a token", "groupnorm"))

for _id, _number, _statement, _what in (
    (
        "padding-contaminates-batchnorm",
        "padding",
        "Without a mask, padded positions change what BatchNorm makes of real tokens; norms of single tokens are "
        "not touched.",
        "padded positions",
    ),
    (
        "batchnorm-leaks-future",
        "leak",
        "In training BatchNorm lets later positions change earlier ones; norms of single tokens do not.",
        "later positions",
    ),
):
    exact(
        _id,
        _FAMILY,
        "batches.contamination" if _number == "padding" else "batches.leakage",
        (
            regime(
                "BatchNorm in training",
                number(f"batchnorm-{_number}", f"largest change of other tokens' results when {_what} change"),
                AtLeast(0.1),
            ),
            *(
                regime(
                    name,
                    number(f"{norm}-{_number}", f"largest change of other tokens' results when {_what} change"),
                    AtMost(0),
                )
                for name, norm in _PER_TOKEN
            ),
        ),
        statement=_statement,
        source=f"{A}; {B}; {C}",
        refuted_by="a real token that BatchNorm leaves alone, or that a per-token norm moves",
        right="As stated. A padding mask on the statistics removes the first; in evaluation, with running statistics, "
        "neither happens.",
        together="parts",
    )

exact(
    "batchnorm-single-token",
    _FAMILY,
    "batches.single_token",
    (
        regime(
            "in training, with the batch's statistics",
            number("single-token-in-training", "1 if a batch of one token cannot be normalized"),
            AtLeast(1),
        ),
        regime(
            "in evaluation, with running statistics",
            number(
                "single-token-deviation",
                "largest difference from (x − m)/s with the distribution's own m and s, after 200 batches",
            ),
            AtLeast(0.5),
            "refuted",
        ),
    ),
    statement="BatchNorm cannot be used in autoregressive generation: a single token has no statistics.",
    source=f"{C}; the contrary in {A}",
    refuted_by="a single token that is normalized as its distribution says",
    right="One token has no batch statistics, and training cannot use it; evaluation uses running statistics, and they "
    "normalize a single token to within a few hundredths of the right value.",
)


def threshold(rows: pd.DataFrame) -> Sample:
    """Return each seed's difference of the log-log slope above 32 tokens from that below.

    Raises:
        Gap: too few batch sizes.
    """
    found = against(rows, "tokens", points=5)
    log_x, log_y = np.log(found.x), np.log(found.y)
    few = found.x <= 32
    above = least_squares_slopes(log_x[~few | (found.x == 32)], log_y[:, ~few | (found.x == 32)])
    return Sample(above - least_squares_slopes(log_x[few], log_y[:, few]), (0,), found.left_out)


exact(
    "batchnorm-train-eval-gap",
    _FAMILY,
    "batches.train_eval_gap",
    (
        regime(
            "BatchNorm, law in the tokens n of a batch",
            trend(
                "train-eval-gap",
                "slope of ln(rms(train − eval)/rms(eval)) on ln n, n = 4 to 256, after burn-in",
                x="tokens",
            ),
            EqualWithin(-0.5, 0.1),
            compared=("tokens",),
        ),
        regime(
            "GroupNorm of a token",
            number("groupnorm-train-eval-gap", "rms(train − eval)/rms(eval)"),
            AtMost(0),
        ),
    ),
    statement="BatchNorm computes something else in evaluation than in training, the more so the smaller the batch; "
    "GroupNorm computes the same.",
    source=f"{A}; {B}; {C}",
    refuted_by="a gap that does not fall with the batch, or a GroupNorm that has one",
    right="After burn-in the gap is the error of the batch's statistics: it falls like 1/√n with the number n of "
    "tokens in a batch.",
    together="parts",
)
exact(
    "batchnorm-batch-32",
    _FAMILY,
    "batches.train_eval_gap",
    (
        regime(
            "slope above 32 against slope below",
            Statistic(
                estimator="log-log slope of the train/eval gap over n = 32 to 256 minus that over 4 to 32",
                unit="slope",
                query="quantity == 'evidence' and name == 'train-eval-gap'",
                sample=threshold,
            ),
            Above(0.2),
            "refuted",
            compared=("tokens",),
        ),
    ),
    statement="BatchNorm needs batches of at least 32 for its statistics to become stable.",
    source=C,
    refuted_by="a gap that falls with the batch by the same law on both sides of 32",
    right="Nothing happens at 32: the gap falls like 1/√n from 4 to 256 tokens, and whether it is small enough depends "
    "on the task.",
    nature="law",
    ill_posed="the gap between training and evaluation stops falling, or falls more slowly, from 32 tokens on.",
)
