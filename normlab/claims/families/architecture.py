"""Exact statements about what a block is, who uses it, and what it costs in parameters."""

from typing import Final

from normlab.claims.building import exact, number, regime
from normlab.claims.exactness import AtLeast, AtMost
from normlab.claims.families.norms import A, B, C

_FAMILY: Final = "exact: architecture"

exact(
    "residual-variance-identity",
    _FAMILY,
    "models.residual_variance",
    (
        regime(
            "with the skip for x",
            number("variance-identity-with-skip", "largest relative gap at any residual add of any placement", "gap"),
            AtMost(1e-10),
        ),
        regime(
            "with the stream for x, in every placement",
            number("variance-identity-with-stream", "largest relative gap at any residual add of any placement", "gap"),
            AtMost(1e-10),
            "refuted",
        ),
    ),
    statement="At every sub-layer Var(x + u) = Var(x) + Var(u) + 2 Cov(x, u).",
    source=B,
    refuted_by="a residual add at which the two sides differ by more than rounding",
    right="As stated with x what the update is added to. Where a placement scales or normalizes its skip (DeepNorm, "
    "HybridNorm, nGPT, B2T), that is not the stream.",
)
exact(
    "pre-residual-is-unnormalised",
    _FAMILY,
    "models.carried_streams",
    (
        regime(
            "Pre-LN adds to the raw stream",
            number("pre-skip-from-raw-stream", "largest difference of the skip from the stream", "deviation"),
            AtMost(0),
        ),
        regime(
            "Post-LN carries a normalized stream",
            number("post-stream-from-unit-scale", "largest distance of a token's mean square from 1", "deviation"),
            AtMost(1e-10),
        ),
        regime(
            "Pre-LN's stream is not normalized",
            number("pre-stream-from-unit-scale", "largest distance of a token's mean square from 1", "deviation"),
            AtLeast(0.1),
        ),
    ),
    statement="In Pre-LN the sum uses the raw stream, and N(h) only feeds the branch; Post-LN carries the normalized "
    "stream on.",
    source=A,
    refuted_by="a Pre-LN skip that was normalized, or a Post-LN stream that was not",
    right="As stated, at γ = 1.",
    together="parts",
)
exact(
    "postln-definition",
    _FAMILY,
    "models.post_definition",
    (
        regime(
            "branch, norm, then add",
            number("norm-before-the-add", "largest difference of x + N(F(x)) from torch's 2017 layer", "deviation"),
            AtMost(1e-6),
            "refuted",
        ),
    ),
    statement="Post-LN, as in the original transformer: compute the branch, then normalize, then add the residual.",
    source=C,
    refuted_by="a reference implementation of the 2017 block that computes something else",
    right="The original block is N(x + F(x)): the norm comes after the add. x + N(F(x)) is res-post-norm (Swin v2).",
)
exact(
    "gpt2-is-post-ln",
    _FAMILY,
    "architecture.census",
    (regime("its preset", number("gpt2-is-post", "1 if GPT-2's placement is post"), AtLeast(1), "refuted"),),
    statement="GPT-2 has the Post-LN architecture.",
    source=C,
    refuted_by="a configuration of GPT-2 with the norms before the sub-layers",
    right="GPT-2 moved LayerNorm to the input of each sub-layer and added one after the last block: Pre-LN.",
)
exact(
    "architecture-census",
    _FAMILY,
    "architecture.census",
    (
        regime(
            "Llama and Qwen are Pre-LN with RMSNorm",
            number("llama-and-qwen-are-pre-rms", "1 if so, from the presets' specs"),
            AtLeast(1),
        ),
        regime(
            "a final norm in every Pre-LN language model",
            number("final-norm-in-every-pre-like-decoder", "1 if so, from the presets' specs"),
            AtLeast(1),
        ),
        regime(
            "Gemma 2 is Pre-LN",
            number("gemma-2-is-pre", "1 if a layer has no norm after its sub-layers, from the transformers package"),
            AtLeast(1),
            "refuted",
        ),
        regime(
            "only GPT still uses LayerNorm",
            number("only-gpt-uses-layernorm", "1 if no other preset uses LayerNorm"),
            AtLeast(1),
            "refuted",
        ),
    ),
    statement="Today's large models are Pre-LN with RMSNorm (Llama, Qwen, Gemma 2), with a final norm; only GPT still "
    "uses LayerNorm.",
    source=f"{B}; {C}",
    refuted_by="a configuration that says otherwise",
    right="Llama and Qwen are, with a final norm. Gemma 2 has a norm before and one after every sub-layer (Peri-LN), "
    "and GPT-NeoX, among others, uses LayerNorm.",
)
for _id, _number, _statement, _estimator in (
    (
        "rms-fewer-parameters",
        "saved-parameters-from-2d",
        "RMSNorm in place of LayerNorm saves two shifts of d parameters in every block.",
        "distance of the difference in a block's parameters from 2d",
    ),
    (
        "llama3-8b-65-norms",
        "norms-of-32-blocks-from-65",
        "Llama 3 8B, with 32 Pre-LN blocks and a final norm, has 65 norms.",
        "distance of the number of norms of 32 Pre-LN blocks with a final norm from 65",
    ),
):
    exact(
        _id,
        _FAMILY,
        "architecture.parameter_counts",
        (regime("counted in a built model", number(_number, _estimator, "count"), AtMost(0)),),
        statement=_statement,
        source=f"{B}; {C}",
        refuted_by="another count",
        right="As stated.",
    )

exact(
    "qknorm-logit-bound",
    _FAMILY,
    "models.logit_bound",
    (
        regime(
            "with QK-norm",
            number("logit-over-bound-with-qk-norm", "largest |logit| over √d_h·max|g_q|·max|g_k|, W_q, W_k times 30"),
            AtMost(1 + 1e-10),
        ),
        regime(
            "without",
            number("logit-over-bound-without", "largest |logit| over √d_h, W_q and W_k times 30"),
            AtLeast(1.5),
        ),
    ),
    statement="With QK-norm no attention logit exceeds √d_h·g_q·g_k, however large the weights; without it they may.",
    source=f"{C}; Henry et al. 2020, arXiv 2010.04245",
    refuted_by="a logit above the bound",
    right="As stated, with the largest entries of the gains: the gains set the bound, and they are learned.",
    together="parts",
)
exact(
    "zero-init-branches-are-identity",
    _FAMILY,
    "models.identity_at_start",
    (
        *(
            regime(
                name,
                number(f"{placement}-from-identity", "largest entry of ∂x_L/∂x_0 − I", "deviation"),
                AtMost(1e-10),
            )
            for name, placement in (("ReZero", "rezero"), ("SkipInit", "skipinit"), ("Swin v2, γ = 0", "res-post-norm"))
        ),
        regime("Pre-LN", number("pre-from-identity", "largest entry of ∂x_L/∂x_0 − I", "deviation"), AtLeast(0.1)),
    ),
    statement="ReZero, SkipInit and Swin v2's γ = 0 make the whole stack the identity at initialisation.",
    source="Bachlechner et al. 2020 (ReZero), De and Smith 2020 (SkipInit), Liu et al. 2022 (Swin v2)",
    refuted_by="a Jacobian of the blocks that is not the identity, or one of Pre-LN that is",
    right="As stated.",
    together="parts",
)
exact(
    "deepnorm-reduces-to-post",
    _FAMILY,
    "models.placements_that_agree",
    (
        regime(
            "α = β = 1",
            number("deepnorm-with-unit-factors", "largest difference of features from Post-LN's", "deviation"),
            AtMost(1e-10),
        ),
        regime(
            "α = (2L)^¼",
            number("deepnorm-with-its-alpha", "largest difference of features from Post-LN's", "deviation"),
            AtLeast(0.01),
        ),
    ),
    statement="DeepNorm with α = β = 1 is Post-LN.",
    source="Wang et al. 2022 (DeepNet), arXiv 2203.00555",
    refuted_by="features that differ",
    right="As stated; its own α makes it another model.",
    together="parts",
)
exact(
    "skipinit-is-no-norm-at-one",
    _FAMILY,
    "models.placements_that_agree",
    (
        regime(
            "b = 1",
            number(
                "skipinit-with-unit-scale", "largest difference of features from a model without norms", "deviation"
            ),
            AtMost(1e-10),
        ),
        regime(
            "b = 0, as it starts",
            number("skipinit-as-it-starts", "largest difference of features from a model without norms", "deviation"),
            AtLeast(0.01),
        ),
    ),
    statement="SkipInit with its branch factor at 1 is a residual network without norms.",
    source="De and Smith 2020, arXiv 2002.10444",
    refuted_by="features that differ",
    right="As stated; at its own start, b = 0, it is the identity.",
    together="parts",
)
exact(
    "lns-starts-as-pre",
    _FAMILY,
    "models.placements_that_agree",
    (
        regime(
            "one block",
            number("lns-and-pre-of-one-block", "largest difference of LNS's features from Pre-LN's", "deviation"),
            AtMost(1e-10),
        ),
    ),
    statement="LayerNorm Scaling leaves the first block as it is in Pre-LN.",
    source="Sun et al. 2025, arXiv 2502.05795",
    refuted_by="features that differ",
    right="As stated: 1/√ℓ is 1 at ℓ = 1.",
)
exact(
    "peri-equals-reordered",
    _FAMILY,
    "models.placements_that_agree",
    (
        regime(
            "MLP only",
            number("peri-and-reordered-mlp-only", "largest difference of the two models' features", "deviation"),
            AtMost(1e-8),
        ),
        regime(
            "attention with QK-norm",
            number("peri-and-reordered-with-attention", "largest difference of the two models' features", "deviation"),
            AtMost(1e-8),
            "refuted",
        ),
    ),
    statement="With RMSNorm, QK-norm and ReLU, Peri-LN and OLMo 2's reordered norm are the same model at γ = 1: the "
    "output norm takes out whatever scale the input norm would have.",
    source="a derivation from OLMo 2, arXiv 2501.00656, and Peri-LN, arXiv 2502.02732",
    refuted_by="features that differ",
    right="True of the MLP, which scales each token's output with its input. Attention mixes values of tokens with "
    "different scales, so that without an input norm (or a norm on values) large tokens weigh more.",
)
