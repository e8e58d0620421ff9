"""Claims about how gradients differ between the layers of one model at initialisation."""

from typing import Final

import numpy as np
import pandas as pd

from normlab.claims.building import regime, swept
from normlab.claims.claim import Gap, Sample, Statistic
from normlab.claims.families.growth import FULL, grid
from normlab.claims.families.norms import SEEN, B, C
from normlab.claims.over_depth import common, over_depth, whole_numbers
from normlab.claims.profiles import GRADIENT, MEAN_SQUARE, deepest, log_ratio, on_stream, paired, profile, rate
from normlab.claims.rules import Above, Below, EqualWithin
from normlab.fits import Curves, least_squares_slopes
from normlab.fits.intervals import Floats

_FAMILY: Final = "backward"
_DEEPEST: Final = "in the deepest models"
_SIX: Final = "placement == 'pre' and final_norm == 'on' and init == 'xavier' and attention == 'softmax' and depth == 6"


def _ratio(fewest: int) -> Statistic:
    return Statistic(
        f"ln(G_1/G_L), grad_norm of role down of the first over the last block, {_DEEPEST}", "log ratio",
        GRADIENT, profile("grad_norm", log_ratio, first=1, fewest=fewest),
    )  # fmt: skip


_LAW = Statistic(
    f"slope of ln G_ℓ, grad_norm of role down, on ln q_ℓ, mean_square at site stream, over the blocks, {_DEEPEST}",
    "log-log slope", f"({GRADIENT}) or ({MEAN_SQUARE})", lambda rows: on_stream(rows, "grad_norm"),
)  # fmt: skip

swept(
    "preln-grad-flat-within-model",
    _FAMILY,
    (
        regime("6 layers, within a factor of 3", _ratio(4), EqualWithin(0, float(np.log(3))), query=_SIX,
               models="Pre-LN models of 6 blocks with softmax attention, Xavier initialisation and the final norm on"),
        regime("64 layers or more, within a factor of 3", _ratio(8), EqualWithin(0, float(np.log(3))), "refuted",
               query=f"{FULL.query} and depth >= 64", models=f"{FULL.words}, of 64 blocks or more"),
        regime("level, whatever the stream's scale", _LAW, EqualWithin(0, 0.1), "refuted", among=FULL),
        regime("following 1/√q_ℓ", _LAW, EqualWithin(-0.5, 0.1), among=FULL, contrast=True),
    ),
    (grid(placement="pre", depth=[6, 64]),),
    statement="Within one Pre-LN model the gradients of all layers are of about the same size.",
    source=f"{B}; Xiong et al. 2020, arXiv 2002.04745",
    refuted_by="a ratio of first to last layer beyond 3, or a log-log slope on the stream's mean square beyond ± 0.1",
    right="Over 6 layers it looks so. Over 64 the first layer's gradient is several times the last's: they follow "
    "1/√q_ℓ, the stream's rms at that layer.",
    plot="gradient_profile",
    version=2,
    history="The law 1/√q_ℓ was added in version 2, with the margin that the last layer's gradient has.",
)  # fmt: skip


_RATE: Final = Statistic(
    f"slope of ln G_ℓ, grad_norm of role down, on ℓ, {_DEEPEST}: positive where gradients decay toward the input",
    "nats a block", GRADIENT, profile("grad_norm", rate, first=1),
)  # fmt: skip


_SELF: Final = (
    "placement == 'post' and kind == 'decoder' and attention == 'softmax' and depth <= 16 and activation == '{}'"
)
_SELF_WORDS: Final = "Post-LN decoders of up to 16 blocks with softmax attention and {}"
_CROSS: Final = "placement == '{}' and kind == 'encoder-decoder' and stack == 'decoder'"
CROSS_GRID: Final = grid(
    placement=["post", "residual", "b2t"], kind="encoder-decoder", encoder_depth=8, depth=[4, 8, 16]
)

swept(
    "postln-grad-vanishes",
    _FAMILY,
    (
        regime("self-attention, ReLU", _RATE, Above(0.1), "refuted", query=_SELF.format("relu"),
               models=_SELF_WORDS.format("ReLU")),
        regime("self-attention, SwiGLU", _RATE, Above(0.1), "refuted", query=_SELF.format("swiglu"),
               models=_SELF_WORDS.format("SwiGLU")),
        regime("with cross-attention", _RATE, Above(0.1), query=_CROSS.format("post"),
               models="Post-LN encoder-decoders"),
    ),
    (grid(placement="post", depth=[8, 16], activation=["relu", "swiglu"]), CROSS_GRID),
    statement="In deep Post-LN transformers gradients vanish toward the input.",
    source=C,
    refuted_by="gradients that do not fall by 10 % a block toward the input",
    right="Not at initialisation in a model with self-attention only: with ReLU they stay level, with SwiGLU they grow "
    "toward the input. With cross-attention they do vanish exponentially, because that branch takes part in every norm "
    "and returns no gradient to the decoder's stream.",
    plot="gradient_profile",
    version=2,
    history="The encoder's depth, 8 blocks, which sets how alike its tokens are and so the rate, and the limit of 16 "
    f"decoder blocks were chosen {SEEN}",
)  # fmt: skip
swept(
    "xiong-decay-factor",
    _FAMILY,
    (
        regime("self-attention, ReLU", _RATE, EqualWithin(float(np.log(1.5) / 2), 0.05), "refuted",
               query=_SELF.format("relu"), models=_SELF_WORDS.format("ReLU")),
    ),
    (grid(placement="post", depth=[8, 16]),),
    statement="In Post-LN gradients decay toward the input by a factor of √(2/3) a layer.",
    source="Xiong et al. 2020, arXiv 2002.04745, supplement F",
    refuted_by="a rate outside ½ ln 1.5 ± 0.05 nats a block",
    right="√(2/3) is the spectral norm of one LayerNorm's Jacobian; the branch's own Jacobian, I + J_F, has a mean "
    "square gain of 3/2 that cancels it. With ReLU and self-attention gradients stay level.",
    plot="gradient_profile",
    version=2,
)  # fmt: skip


def _spread(found: Curves) -> Floats:
    return np.asarray(np.log(found.y).std(axis=1, ddof=1))


swept(
    "mixln-flatter",
    _FAMILY,
    (
        regime(
            "Mix-LN against Pre-LN",
            Statistic(f"standard deviation over blocks of ln G_ℓ of role down, Mix-LN minus Pre-LN, {_DEEPEST}", "nats",
                      GRADIENT, lambda rows: paired(rows, "grad_norm", _spread, "mix-ln", "pre")),
            Below(0),
            "refuted",
            query="(placement == 'mix-ln' or placement == 'pre') and depth == 32 and init == 'xavier' "
            "and attention == 'softmax' and final_norm == 'on'",
            models="Mix-LN and Pre-LN models of 32 blocks with softmax attention, Xavier initialisation and the final "
            "norm on",
            compared=("placement",),
        ),
    ),
    (grid(placement=["mix-ln", "pre"], depth=32),),
    statement="Mix-LN has gradients that are more equal over the layers than Pre-LN's.",
    source="Li et al. 2024, arXiv 2412.13795",
    refuted_by="a spread over the layers that is not below Pre-LN's",
    right="Not at initialisation: the Post-LN blocks stay level at the largest gradient, and the Pre-LN blocks, whose "
    "stream starts from 1 again at the switch, fall nearly as far as in Pre-LN alone. After training it is another "
    "measurement.",
    plot="gradient_profile",
)  # fmt: skip


def first_over_last(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope on L of ln(G_1/G_L).

    Raises:
        Gap: too few depths.
    """
    ends = [rows[(rows["layer"] == where).fillna(False)] for where in (1, rows["depth"])]
    first, last = (over_depth(end, "grad_norm", "grad_norm of role down") for end in ends)
    depths, _, low, high = common(first, last)
    return Sample(least_squares_slopes(depths, np.log(low / high)), whole_numbers(depths))


_ENDS = Statistic("slope on L of ln(G_1/G_L), grad_norm of role down", "nats a block", GRADIENT, first_over_last)

swept(
    "residual-dual-path",
    _FAMILY,
    (
        regime("ResiDual, with cross-attention", _ENDS, Above(-0.1), query=_CROSS.format("residual"),
               models="ResiDual encoder-decoders"),
        regime("Post-LN, with cross-attention", _ENDS, Above(-0.1), "refuted", query=_CROSS.format("post"),
               models="Post-LN encoder-decoders", contrast=True),
    ),
    (CROSS_GRID,),
    statement="A second, unnormalized stream (ResiDual) keeps the first layers' gradients from vanishing with depth.",
    source="Xie et al. 2023, arXiv 2304.14802",
    refuted_by="a ratio of first to last layer that falls with depth",
    right="As stated: where Post-LN's ratio decays exponentially with depth, ResiDual's does not.",
    plot="gradient_profile",
    version=2,
    history=f"The encoder's depth of 8 blocks was chosen {SEEN}",
)  # fmt: skip
swept(
    "b2t-less-decay",
    _FAMILY,
    (
        regime(
            "B2T against Post-LN, with cross-attention",
            Statistic(f"slope of ln G_ℓ of role down on ℓ, B2T minus Post-LN, {_DEEPEST}", "nats a block", GRADIENT,
                      lambda rows: paired(rows, "grad_norm", rate, "b2t", "post")),
            Below(0),
            query="(placement == 'b2t' or placement == 'post') and kind == 'encoder-decoder' and stack == 'decoder'",
            models="B2T and Post-LN encoder-decoders",
            compared=("placement",),
        ),
    ),
    (CROSS_GRID,),
    statement="Skipping from the block's input past all norms but the last (B2T) makes Post-LN's gradients decay less.",
    source="Takase et al. 2022, arXiv 2206.00330",
    refuted_by="a decay that is not slower than Post-LN's",
    right="As stated, at initialisation and with cross-attention.",
    plot="gradient_profile",
    history=f"The encoder's depth of 8 blocks was chosen {SEEN}",
)  # fmt: skip


def with_overlap(rows: pd.DataFrame) -> Sample:
    """Return each seed's slope of ln(G_q/G_v) of a block on ln(1 − ρ) of the stream that enters it.

    Raises:
        Gap: no seed has enough blocks.
    """
    deep = deepest(rows)
    overlap = deep[deep["quantity"] == "token_overlap"].assign(layer=lambda found: found["layer"] + 1)
    gap = 1 - overlap.pivot(index="model_seed", columns="layer", values="value")
    roles = deep[deep["quantity"] == "grad_norm"]
    query, value = (
        roles[roles["role"] == role].pivot(index="model_seed", columns="layer", values="value") for role in ("q", "v")
    )
    shared = [block for block in query.columns if block in gap.columns and block in value.columns]
    blocks = [block for block in shared if float(gap[block].min()) > 1e-4]
    if len(blocks) < 4 or not len(query) == len(value) == len(gap):
        raise Gap(f"4 blocks with gradients and an overlap below 1 are needed and {len(blocks)} can be used")
    x, y = np.log(gap[blocks].to_numpy(dtype=float)), np.log((query / value)[blocks].to_numpy(dtype=float))
    return Sample(least_squares_slopes(x, y), (int(deep["depth"].max()),))


swept(
    "qk-gradient-dies-with-rank",
    _FAMILY,
    (
        regime(
            "Post-LN, whose tokens align",
            Statistic("slope of ln(G_q/G_v), grad_norm of roles q and v of a block, on ln(1 − token_overlap) of the "
                      "stream that enters it", "log-log slope",
                      "(quantity == 'grad_norm' and (role == 'q' or role == 'v') and sublayer == 'attn') or "
                      "(quantity == "
                      "'token_overlap' and site == 'stream' and (sublayer == 'mlp' or sublayer == 'embed'))",
                      with_overlap),
            Above(0.3),
            query=_SELF.format("relu"),
            models=_SELF_WORDS.format("ReLU"),
        ),
    ),
    (grid(placement="post", depth=[8, 16]),),
    statement="As tokens become alike, the gradients of W_Q and W_K vanish.",
    source="Noci et al. 2022, arXiv 2206.03126",
    refuted_by="a ratio to W_V's gradient that does not fall with 1 − overlap",
    right="As stated: the ratio falls like a power of 1 − ρ; the softmax's Jacobian kills values that are all alike.",
    plot="token_overlap",
    version=2,
)  # fmt: skip
