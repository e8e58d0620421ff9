"""Claims about what sub-layers, the stream and the head see at initialisation."""

from typing import Final

import numpy as np
import pandas as pd

from normlab.claims.building import regime, swept
from normlab.claims.claim import Gap, Sample, Statistic
from normlab.claims.exactness import AtMost
from normlab.claims.families.growth import FULL, LADDER, NONE, WITHOUT_FINAL_NORM, grid
from normlab.claims.families.norms import SEEN, A, B
from normlab.claims.over_depth import over_depth, whole_numbers
from normlab.claims.profiles import STREAM, deepest, log_slope, misfit, over_layers, profile
from normlab.claims.rules import Below, EqualWithin
from normlab.fits import least_squares_slopes
from normlab.fits.intervals import Floats

_FAMILY: Final = "forward"
_DEEPEST: Final = "in the deepest models"


def alignments(rows: pd.DataFrame) -> Sample:
    """Return each seed's root mean square over sub-layers of alignment·√d, in the deepest models.

    Raises:
        Gap: the models are too shallow.
    """
    deep = deepest(rows)
    scaled = deep.assign(square=deep["value"] ** 2 * deep["width"].astype("float64"))
    values = scaled.groupby("model_seed")["square"].mean().to_numpy(dtype=np.float64)
    return Sample(np.sqrt(values), (int(deep["depth"].max()),))


_ALIGNMENT = Statistic(
    f"root mean square over sub-layers of √d·alignment of update and stream, {_DEEPEST}", "√d·alignment",
    "quantity == 'alignment' and site == 'update'", alignments,
)  # fmt: skip

swept(
    "update-uncorrelated-with-stream",
    _FAMILY,
    (
        regime("without attention", _ALIGNMENT, Below(2), among=NONE),
        regime("full block", _ALIGNMENT, Below(2), among=FULL),
    ),
    (grid(placement="pre", attention=["none", "softmax"], depth=64),),
    statement="At initialisation an update is about uncorrelated with the stream that it is added to.",
    source=f"{B}; Xiong et al. 2020, arXiv 2002.04745",
    refuted_by="alignments beyond 2/√d",
    right="As stated: alignments are of the order of 1/√d, as for independent directions. A negative correlation, "
    "which "
    "would shrink the stream, does not occur at initialisation.",
    plot="update_ratio",
)


def from_one(rows: pd.DataFrame) -> Sample:
    """Return each seed's largest |rms − 1| over the sub-layers of the deepest models.

    Raises:
        Gap: the models are too shallow.
    """
    deep = deepest(rows)
    off = deep.assign(off=(deep["value"] ** 0.5 - 1).abs()).groupby("model_seed")["off"].max()
    return Sample(off.to_numpy(dtype=np.float64), (int(deep["depth"].max()),))


def _unit(site: str) -> Statistic:
    return Statistic(
        f"largest |rms − 1| at site {site} over the blocks, {_DEEPEST}", "deviation",
        f"quantity == 'mean_square' and site == '{site}' and layer > 0", from_one,
    )  # fmt: skip


swept(
    "preln-input-scale-constant",
    _FAMILY,
    (
        regime("stream far above ε", _unit("input"), AtMost(1e-3), among=FULL),
        regime(
            "stream that starts at 0.02, whose square is not far above ε",
            _unit("input"),
            AtMost(1e-3),
            "refuted",
            query="placement == 'pre' and init == 'gpt2-scaled'",
            models="Pre-LN models with GPT-2's initialisation",
        ),
        regime(
            "after the gains of trained checkpoints",
            _unit("input"),
            AtMost(1e-3),
            "refuted",
            query="placement == 'pre' and init == 'trained'",
            models="trained checkpoints",
            not_tested="weights",
        ),
    ),
    (grid(placement="pre", depth=64), grid(placement="pre", init="gpt2-scaled", depth=[8, 16, 32])),
    statement="In Pre-LN every sub-layer sees an input of a fixed scale, whatever the stream has grown to.",
    source=f"{A}; {B}",
    refuted_by="an input whose rms is not 1 to a thousandth",
    right="True by construction at γ = 1 and as long as the stream's variance is far above ε. GPT-2's embedding has a "
    "variance of 4·10⁻⁴ and ε is 10⁻⁵: the first inputs are a percent too small. After training γ sets the scale.",
    nature="construction",
    version=2,
    plot="input_scale",
)
swept(
    "postln-stream-constant",
    _FAMILY,
    (
        regime("Post-LN", _unit("stream"), AtMost(1e-3), query="placement == 'post' and kind == 'decoder'",
               models="Post-LN decoders"),
        regime("Pre-LN", _unit("stream"), AtMost(1e-3), "refuted", among=FULL, contrast=True),
        regime("Post-LN, after the gains of trained checkpoints", _unit("stream"), AtMost(1e-3), "refuted",
               query="placement == 'post' and init == 'trained'", models="trained checkpoints", not_tested="weights"),
    ),
    (grid(placement=["post", "pre"], depth=64),),
    statement="A norm after the add keeps the stream itself at a fixed scale.",
    source=f"{A}; {B}",
    refuted_by="a stream whose rms is not 1 to a thousandth",
    right="True by construction of Post-LN at γ = 1; Pre-LN's stream is not held.",
    nature="construction",
    version=2,
    plot="stream_growth",
)  # fmt: skip


def head_on_depth(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope on ln L of ln rms of what the head sees.

    Raises:
        Gap: too few depths.
    """
    found = over_depth(rows, "mean_square", "mean_square of what the head sees")
    slopes = least_squares_slopes(np.log(found.x), np.log(found.y) / 2)
    return Sample(slopes, whole_numbers(found.x), found.left_out)


def _head(query: str) -> Statistic:
    return Statistic("slope of ln rms of what the head sees on ln L", "log-log slope", query, head_on_depth)


swept(
    "final-norm-restores-scale",
    _FAMILY,
    (
        regime(
            "final norm on", _head("quantity == 'mean_square' and site == 'final'"), EqualWithin(0, 0.02), among=FULL
        ),
        regime(
            "final norm off",
            _head("quantity == 'mean_square' and site == 'stream' and sublayer == 'mlp' and layer == depth"),
            EqualWithin(0, 0.02),
            "refuted",
            among=WITHOUT_FINAL_NORM,
            contrast=True,
        ),
    ),
    (grid(placement="pre", final_norm=[True, False], depth=LADDER),),
    statement="The head gets a representation of a controlled scale, whatever the depth, because the final norm brings "
    "the grown stream back.",
    source=f"{A}; {B}",
    refuted_by="a scale at the head that depends on depth",
    right="As stated: with the final norm the head sees the same rms at every depth, without it one that grows.",
    nature="construction",
    version=2,
)


_UPDATE_SLOPE = Statistic(
    f"slope of ln update_ratio (mlp rows) on ln ℓ, {_DEEPEST}", "log-log slope",
    "quantity == 'update_ratio' and site == 'update' and sublayer == 'mlp'",
    profile("update_ratio", log_slope, first=1),
)  # fmt: skip


def turned(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope of ln(1 − cos(x, x + u)) on ln ℓ, from update ratio r and alignment a.

    cos = (1 + r a)/√(1 + 2 r a + r²), over all tokens at once.

    Raises:
        Gap: the models are too shallow.
    """
    deep = deepest(rows)
    ratio, along = over_layers(deep, "update_ratio", 1), over_layers_signed(deep)
    if along.shape != ratio.y.shape:
        raise Gap("update ratio and alignment are not there for the same blocks and seeds")
    both = ratio.y * along
    cosine = (1 + both) / np.sqrt(1 + 2 * both + ratio.y**2)
    slopes = least_squares_slopes(np.log(ratio.x), np.log(np.maximum(1 - cosine, 1e-12)))
    return Sample(slopes, (int(deep["depth"].max()),), ratio.left_out)


def over_layers_signed(deep: pd.DataFrame) -> Floats:
    """Return alignment against the block, one row a seed, whatever its sign.

    Raises:
        Gap: the table has none.
    """
    rows = deep[deep["quantity"] == "alignment"]
    if rows.empty:
        raise Gap("the table has no alignment of the blocks")
    wide = rows.pivot(index="model_seed", columns="layer", values="value")
    return np.asarray(wide.to_numpy(dtype=np.float64))


_TURN_SLOPE = Statistic(
    f"slope of ln(1 − cos) between the stream before and after the MLP on ln ℓ, {_DEEPEST}", "log-log slope",
    "(quantity == 'update_ratio' or quantity == 'alignment') and site == 'update' and sublayer == 'mlp'", turned,
)  # fmt: skip

swept(
    "late-layers-matter-less",
    _FAMILY,
    (
        regime("update ratio, without attention", _UPDATE_SLOPE, Below(-0.2), among=NONE),
        regime("update ratio, full block", _UPDATE_SLOPE, Below(-0.2), among=FULL),
        regime("1 − cos, full block", _TURN_SLOPE, Below(-0.4), among=FULL),
        regime("update ratio, Post-LN with ReLU", _UPDATE_SLOPE, Below(-0.2), "refuted",
               query="placement == 'post' and kind == 'decoder' and activation == 'relu'",
               models="Post-LN decoders with ReLU"),
    ),
    (grid(placement="pre", attention=["none", "softmax"], depth=64), grid(placement="post", depth=LADDER)),
    statement="The later a layer, the less it changes the stream: late layers come close to the identity.",
    source=f"{B}; Sun et al. 2025, arXiv 2502.05795",
    refuted_by="update ratios that do not fall along the stack",
    right="In Pre-LN update ratios fall like a power of ℓ, about −0.4 over 64 blocks without attention (−½ at great "
    "depth), and 1 − cos about twice as fast. They fall because the stream grows; in Post-LN they do not fall.",
    plot="update_ratio",
    version=2,
)  # fmt: skip


def collapse(rows: pd.DataFrame) -> Sample:
    """Return each seed's ln of the misfit of an exponential to 1 − token_overlap over that of a power law.

    Blocks at which 1 − overlap has come down to 10⁻⁴ are left out: float32 has no more digits there.

    Raises:
        Gap: the models are too shallow, or the tokens align at once.
    """
    deep = deepest(rows)
    kept = deep.assign(value=1 - deep["value"])
    kept = kept[(kept["value"] > 1e-4) & (kept["layer"] > 0).fillna(False)]
    found = over_layers(kept, "token_overlap", 1)
    return Sample(misfit(found, np.positive, np.log), (int(deep["depth"].max()),), found.left_out)


_COLLAPSE = Statistic(
    f"ln of squared residuals of ln(1 − token_overlap) on ℓ over those on ln ℓ, {_DEEPEST}", "log ratio",
    f"quantity == 'token_overlap' and {STREAM}", collapse,
)  # fmt: skip

swept(
    "rank-collapse",
    _FAMILY,
    (
        regime("Post-LN with ReLU, up to 16 blocks", _COLLAPSE, Below(0),
               query="placement == 'post' and kind == 'decoder' and depth <= 16 "
               "and attention == 'softmax' and activation == 'relu'", models="Post-LN decoders of up to 16 blocks with "
               "softmax attention and ReLU"),
        regime("Pre-LN", _COLLAPSE, Below(0), "refuted", among=FULL),
    ),
    (grid(placement=["post", "pre"], depth=LADDER),),
    statement="Tokens become alike exponentially fast with depth.",
    source="Dong et al. 2021, arXiv 2103.03404; Noci et al. 2022, arXiv 2206.03126",
    refuted_by="a distance from collapse that a power law fits better than an exponential",
    right="Exponential in Post-LN. In Pre-LN the growing stream slows it to a power law of ℓ.",
    plot="token_overlap",
    version=2,
    history="The limit of 16 blocks in Post-LN, beyond which 1 − overlap has no digits left in float32, was chosen "
    f"{SEEN}",
)  # fmt: skip
