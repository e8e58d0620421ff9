"""Exact statements about norms as functions of a token."""

from typing import Final

from normlab.claims.building import computation, exact, identity, number, regime
from normlab.claims.claim import Claim, Design, register_claim
from normlab.claims.exactness import AtLeast, AtMost

A: Final = "an exposition of LayerNorm and RMSNorm"
B: Final = "an exposition of norms in transformers"
C: Final = "a survey of norms from BatchNorm to RMSNorm"
#: How a choice that data had a part in is told.
SEEN: Final = "after runs with seeds from 0 on had been seen; the kept table has other seeds."
_FAMILY: Final = "exact: norms"

_EXAMPLES = (
    ("ln", "LayerNorm", "layernorm", "[-1.342, -0.447, 0.447, 1.342]"),
    ("rms", "RMSNorm", "rmsnorm", "[0.365, 0.730, 1.095, 1.461]"),
)
for _short, _name, _key, _result in _EXAMPLES:
    exact(
        f"{_short}-worked-example",
        _FAMILY,
        "norms.worked_examples",
        identity(f"{_key}-example", f"largest difference of {_name}([1, 2, 3, 4]), ε = 0, from {_result}", within=5e-4),
        statement=f"{_name} takes [1, 2, 3, 4] to {_result}.",
        source=A,
        refuted_by="a difference of more than half a unit of the last printed place",
        right="As stated, to the printed places.",
    )

exact(
    "rms2-is-variance-plus-mean2",
    _FAMILY,
    "norms.moments",
    identity(
        "rms2-is-variance-plus-mean2",
        "largest relative difference of mean(x²) from population variance + mean², over 100 tokens",
        within=1e-12,
    ),
    statement="RMS(x)² = Var(x) + mean(x)².",
    source=A,
    refuted_by="a token for which the two sides differ by more than rounding",
    right="As stated, with the population variance (division by d, not by d − 1).",
)
exact(
    "ln-shift-invariant",
    _FAMILY,
    "norms.shifts",
    identity("layernorm-under-shift", "largest change of LayerNorm's output when a constant is added to x"),
    statement="Adding one constant to every feature of its input leaves LayerNorm's output as it is.",
    source=B,
    refuted_by="an output that changes by more than rounding",
    right="As stated, for one constant a token; a constant of its own for each feature does change the output.",
)
exact(
    "rms-not-shift-invariant",
    _FAMILY,
    "norms.shifts",
    (
        regime(
            "a shift of 2",
            number("rmsnorm-under-shift", "largest change of RMSNorm's output when ± 2 is added to x", "change"),
            AtLeast(0.1),
        ),
    ),
    statement="RMSNorm's output changes when a constant is added to its input.",
    source=B,
    refuted_by="an output that stays",
    right="As stated.",
)
exact(
    "rms-keeps-signs",
    _FAMILY,
    "norms.signs_and_ratios",
    (
        regime(
            "RMSNorm keeps signs",
            number("rmsnorm-changed-signs", "share of features whose sign RMSNorm changes"),
            AtMost(0),
        ),
        regime(
            "RMSNorm keeps ratios",
            number("rmsnorm-changed-ratios", "largest |y_i x_1 − y_1 x_i| over largest x², RMSNorm"),
            AtMost(1e-12),
        ),
        regime(
            "LayerNorm changes signs",
            number("layernorm-changed-signs", "share of features whose sign LayerNorm changes, tokens of mean 1"),
            AtLeast(0.01),
        ),
        regime(
            "LayerNorm changes ratios",
            number("layernorm-changed-ratios", "largest |y_i x_1 − y_1 x_i| over largest x², LayerNorm"),
            AtLeast(0.01),
        ),
    ),
    statement="Before its gain RMSNorm divides by one positive number, so it keeps signs and ratios of features; "
    "LayerNorm changes both.",
    source=A,
    refuted_by="a sign or ratio that RMSNorm changes, or that LayerNorm keeps for tokens with a mean",
    right="As stated; with a learned gain of mixed signs RMSNorm keeps neither.",
    together="parts",
)
exact(
    "ln-is-projected-rms",
    _FAMILY,
    ("norms.projections", "models.centred_writers"),
    (
        regime(
            "after projection",
            number(
                "layernorm-of-x-against-rmsnorm-of-projection",
                "largest difference of LayerNorm(x) from RMSNorm(x − mean(x))",
                "deviation",
            ),
            AtMost(1e-10),
        ),
        regime(
            "a model whose writers to the stream are centred",
            number("centred-writers", "largest difference of the features of a LayerNorm and an RMSNorm model"),
            AtMost(1e-10),
        ),
        regime(
            "a model with the usual writers",
            number("usual-writers", "largest difference of the features of a LayerNorm and an RMSNorm model"),
            AtMost(1e-10),
            "refuted",
        ),
    ),
    statement="LayerNorm is RMSNorm after a projection orthogonal to (1, …, 1), so that the two give the same.",
    source=f"{C}; Gupta et al. 2024, arXiv 2409.12951",
    refuted_by="outputs that differ by more than rounding",
    right="The identity is exact for each norm. Whole models agree where every matrix that writes to the stream "
    "(embedding, W_o, W_down) has outputs of mean 0, and differ otherwise.",
)
exact(
    "affine-cannot-undo",
    _FAMILY,
    "norms.undoing",
    (
        regime(
            "BatchNorm",
            number("batchnorm-undone-residual", "relative rms of what the best γ, β per feature cannot restore"),
            AtMost(1e-10),
        ),
        regime(
            "LayerNorm, a single token",
            number("layernorm-one-token-residual", "largest difference of γ·LN(x) + β from x with γ = σ, β = μ"),
            AtMost(1e-10),
        ),
        regime(
            "LayerNorm, tokens of different scales",
            number("layernorm-undone-residual", "relative rms of what the best γ, β per feature cannot restore"),
            AtMost(1e-10),
            "refuted",
        ),
    ),
    statement="The learned γ and β let a normalized layer restore the original distribution where that is needed.",
    source=C,
    refuted_by="tokens that no shared γ and β can restore",
    right="BatchNorm's statistics are one pair a feature, as γ and β are: they can be undone. LayerNorm's are one "
    "pair a token, and γ and β are shared by all tokens: they cannot.",
)
exact(
    "ln-rms-outputs-alike",
    _FAMILY,
    "norms.outputs_alike",
    (
        regime(
            "tokens of mean 0, any one width",
            number(
                "mismatch-of-gaussian-tokens",
                "largest |ln| ratio of 1 − r, mean and largest difference to those quoted, at the best width",
                "log ratio",
            ),
            AtMost(0.3),
            "refuted",
        ),
        regime(
            "tokens with a common mean of 0.19 σ",
            number(
                "mismatch-of-offset-tokens",
                "largest |ln| ratio of 1 − r, mean and largest difference to those quoted, at the best width",
                "log ratio",
            ),
            AtMost(0.3),
        ),
        regime(
            "a single token",
            number("per-token-correlation-from-1", "largest distance of the correlation within a token from 1"),
            AtLeast(1e-3),
            "refuted",
        ),
    ),
    statement="Outputs of LayerNorm and RMSNorm have a correlation of 0.9976, a mean absolute difference of 0.19 and a "
    "largest difference of 0.53.",
    source=C,
    refuted_by="a kind of input for which no width gives all three figures together",
    right="Within a token the correlation is exactly 1. Pooled over Gaussian tokens of mean 0 it is 0.9976 at width "
    "208, and the mean difference is 0.19 at width 18: no one width gives both. Tokens that share a mean of about "
    "0.19 σ give all three figures together at a width near 208.",
    ill_posed="for which Gaussian inputs do the three figures hold together, within a factor of 1.35?",
)
register_claim(
    Claim(
        id="ln-discards-mean-forever",
        version=1,
        family=_FAMILY,
        statement="The projection of LayerNorm cannot be undone: what a token holds along (1, …, 1) is lost for good.",
        source=C,
        nature="exact",
        regimes=(
            regime(
                "Post-LN",
                number("post-constant-left", "share of a constant, added to the embedding, left after two blocks"),
                AtMost(1e-10),
            ),
            regime(
                "Pre-LN",
                number("pre-constant-left", "share of a constant, added to the embedding, left after two blocks"),
                AtMost(1e-10),
                "refuted",
            ),
        ),
        refuted_by="a stream that still carries a constant that was added to it",
        right_statement="In Post-LN it is gone after the first norm. In Pre-LN only the branches do not see it; the "
        "stream carries it on unchanged, to the final norm.",
        design=Design(evidence=(computation("models.constant_direction"),)),
    )
)
