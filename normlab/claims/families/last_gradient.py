"""Claims about gradients at initialisation."""

import numpy as np
import pandas as pd

from normlab.claims.claim import Claim, Design, Gap, Regime, Sample, Statistic, register_claim
from normlab.claims.over_depth import LAST_GRADIENT, LAST_STREAM, common, over_depth, whole_numbers
from normlab.claims.rules import Above, EqualWithin, Outcome
from normlab.fits import Curves, least_squares_slopes, seed_interval
from normlab.fits.intervals import Floats

_GRADIENT = "grad_norm of role down in the last block"
_NORMS = "norm in ('layernorm', 'rmsnorm') and kind != 'encoder-decoder'"
_NORMS_WORDS = "(LayerNorm or RMSNorm, no encoder-decoder)"


def gradient_on_stream(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope of ln G on the measured ln q_L, over models of different depth.

    Raises:
        Gap: too few depths, or streams whose mean squares hardly differ.
    """
    gradient = over_depth(rows, "grad_norm", _GRADIENT)
    stream = over_depth(rows, "mean_square", "mean_square of the stream after the last block")
    depths, _, grown, scale = common(gradient, stream)
    log_g, log_q = np.log(grown), np.log(scale)
    if (np.ptp(log_q, axis=1) < np.log(2)).any():
        raise Gap("the stream's mean square varies by less than a factor of 2 over the depths: no slope on it")
    on_depth = seed_interval(least_squares_slopes(np.log(depths), log_g), level=0.98)
    return Sample(
        least_squares_slopes(log_q, log_g),
        whole_numbers(depths),
        tuple(dict.fromkeys((*gradient.left_out, *stream.left_out))),
        detail=f"on ln L the slope is {on_depth.mean:.3f} [{on_depth.low:.3f}, {on_depth.high:.3f}]",
    )


def gradient_on_depth(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope of ln G on ln L.

    Raises:
        Gap: too few depths.
    """
    gradient = over_depth(rows, "grad_norm", _GRADIENT)
    slopes = least_squares_slopes(np.log(gradient.x), np.log(gradient.y))
    return Sample(slopes, whole_numbers(gradient.x), gradient.left_out)


def ratio_on_depth(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope of ln(G_post/G_pre) on ln L.

    Raises:
        Gap: too few depths that both placements have.
    """
    depths, ratios, notes = _log_ratio(rows)
    return Sample(least_squares_slopes(np.log(depths), ratios), whole_numbers(depths), notes)


def smallest_ratio(rows: pd.DataFrame) -> Sample:
    """Return each seed's ln(G_post/G_pre) at the depth at which its mean over seeds is smallest.

    Raises:
        Gap: too few depths that both placements have.
    """
    depths, ratios, notes = _log_ratio(rows)
    smallest = int(ratios.mean(axis=0).argmin())
    factors = ", ".join(
        f"{np.exp(mean):.2f} at L = {depth:g}" for depth, mean in zip(depths, ratios.mean(axis=0), strict=True)
    )
    return Sample(ratios[:, smallest], whole_numbers(depths), notes, detail=f"the ratio is {factors}")


def _log_ratio(rows: pd.DataFrame) -> tuple[Floats, Floats, tuple[str, ...]]:
    post, pre = (_of(rows, placement) for placement in ("post", "pre"))
    depths, _, above, below = common(post, pre)
    return depths, np.log(above / below), tuple(dict.fromkeys((*post.left_out, *pre.left_out)))


def _of(rows: pd.DataFrame, placement: str) -> Curves:
    chosen = rows[rows["placement"] == placement]
    if chosen.empty:
        raise Gap(f"the table has no {placement} models that otherwise equal these")
    return over_depth(chosen, "grad_norm", f"{_GRADIENT} ({placement})")


_ON_STREAM = Statistic(
    estimator="slope of ln G, grad_norm of role down in block L, on ln q_L, the measured mean_square at site stream "
    "after block L, over models of different depth: least squares in each seed",
    unit="log-log slope",
    query=f"({LAST_GRADIENT}) or ({LAST_STREAM})",
    sample=gradient_on_stream,
)


def _final_norm(state: str, *, expected: Outcome) -> Regime:
    return Regime(
        name=f"final norm {state}",
        query=f"placement == 'pre' and {_NORMS} and final_norm == '{state}'",
        models=f"Pre-LN models {_NORMS_WORDS} with the final norm {state}",
        statistic=_ON_STREAM,
        rule=EqualWithin(target=-0.5, margin=0.1),
        expected=expected,
    )


register_claim(
    Claim(
        id="preln-grad-shrinks-with-depth",
        version=1,
        family="backward",
        statement="In a Pre-LN transformer at initialisation the gradient of the last layer shrinks with depth "
        "like 1/√L, because the stream that it is measured at has grown.",
        source="Xiong et al. 2020, arXiv 2002.04745, theorem 1; repeated in expositions of Pre-LN",
        nature="law",
        regimes=(_final_norm("on", expected="supported"), _final_norm("off", expected="refuted")),
        refuted_by="a slope on ln q_L whose interval lies wholly outside −0.5 ± 0.1, such as the positive one that "
        "is expected without the final norm",
        right_statement="The final norm makes the effect: its Jacobian divides by the stream's rms √q_L, so the "
        "last gradient falls like 1/√q_L, and like 1/√L as far as q_L grows like L. Without the final norm the "
        "same gradient grows with depth.",
        plot="last_gradient",
        design=Design(
            grids=(
                {
                    "placement": ["pre"],
                    "activation": ["relu"],
                    "final_norm": [True, False],
                    "depth": [4, 8, 16, 32, 64],
                },
            ),
        ),
    )
)

_POST_AND_PRE = (
    f"((placement == 'post' and final_norm == 'off') or (placement == 'pre' and final_norm == 'on')) and {_NORMS}"
)
_BOTH = f"Post-LN models without, and Pre-LN models with, a final norm {_NORMS_WORDS}"

register_claim(
    Claim(
        id="postln-output-grad-large",
        version=1,
        family="backward",
        statement="In a Post-LN transformer at initialisation the gradients near the output are large: they do not "
        "shrink as layers are added, and exceed those of a Pre-LN transformer of the same depth the more, the "
        "deeper it is.",
        source="Xiong et al. 2020, arXiv 2002.04745, theorem 1; repeated in expositions of Post-LN",
        nature="law",
        together="parts",
        regimes=(
            Regime(
                name="against depth",
                query=f"placement == 'post' and {_NORMS}",
                models=f"Post-LN models {_NORMS_WORDS}",
                statistic=Statistic(
                    estimator="slope of ln G, grad_norm of role down in block L, on ln L: least squares in each seed",
                    unit="log-log slope",
                    query=LAST_GRADIENT,
                    sample=gradient_on_depth,
                ),
                rule=Above(bound=-0.1),
                expected="supported",
            ),
            Regime(
                name="Post-LN over Pre-LN, smallest ratio",
                query=_POST_AND_PRE,
                models=_BOTH,
                statistic=Statistic(
                    estimator="ln(G_post/G_pre), grad_norm of role down in block L, at the depth where its mean over "
                    "seeds is smallest",
                    unit="log ratio",
                    query=LAST_GRADIENT,
                    sample=smallest_ratio,
                ),
                rule=Above(bound=0.0),
                expected="supported",
                compared=("placement", "placement_options", "final_norm"),
            ),
            Regime(
                name="Post-LN over Pre-LN, against depth",
                query=_POST_AND_PRE,
                models=_BOTH,
                statistic=Statistic(
                    estimator="slope of ln(G_post/G_pre), grad_norm of role down in block L, on ln L: least squares "
                    "in each seed",
                    unit="log-log slope",
                    query=LAST_GRADIENT,
                    sample=ratio_on_depth,
                ),
                rule=Above(bound=0.0),
                expected="supported",
                compared=("placement", "placement_options", "final_norm"),
            ),
        ),
        refuted_by="a slope on ln L whose upper bound is below −0.1, a ratio to Pre-LN below 1, or one that falls "
        "with depth",
        right_statement="Post-LN normalizes the stream that the last block writes to, so the gradient there does "
        "not depend on depth; Pre-LN's, behind a final norm, falls like 1/√q_L, and their ratio rises like √q_L.",
        plot="last_gradient",
        design=Design(
            grids=({"placement": ["post", "pre"], "activation": ["relu"], "depth": [4, 8, 16, 32, 64]},),
        ),
    )
)
