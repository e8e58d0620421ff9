"""Exact statements about Jacobians, gradients and weight scale."""

from typing import Final

from normlab.claims.building import exact, number, regime
from normlab.claims.exactness import AtLeast, AtMost
from normlab.claims.families.norms import A, B, C

_FAMILY: Final = "exact: Jacobians"

exact(
    "ln-projects-out-ones",
    _FAMILY,
    "jacobians.null_directions",
    (
        regime(
            "LayerNorm, (1, …, 1)",
            number("layernorm-kills-ones", "σ‖J 1‖/‖1‖ of LayerNorm's Jacobian J", "gain"),
            AtMost(1e-10),
        ),
        regime(
            "LayerNorm, x − μ",
            number("layernorm-kills-centred", "σ‖J (x − μ)‖/‖x − μ‖ of LayerNorm's Jacobian J", "gain"),
            AtMost(1e-10),
        ),
        regime("RMSNorm, x", number("rmsnorm-kills-x", "rms‖J x‖/‖x‖ of RMSNorm's Jacobian J", "gain"), AtMost(1e-10)),
    ),
    statement="LayerNorm projects (1, …, 1) and the centred token itself out of whatever passes through it; RMSNorm "
    "projects out the token alone.",
    source=f"{C}; Gupta et al. 2024, arXiv 2409.12951",
    refuted_by="a direction of those that passes",
    right="As stated for ε = 0; with ε the token's own direction passes with a factor ε/(σ² + ε).",
    together="parts",
)
exact(
    "norm-jacobian-spectrum",
    _FAMILY,
    "jacobians.null_directions",
    (
        regime(
            "LayerNorm",
            number("layernorm-spectrum", "largest distance of σ·singular values from d − 2 ones and 2 zeros"),
            AtMost(1e-10),
        ),
        regime(
            "RMSNorm",
            number("rmsnorm-spectrum", "largest distance of rms·singular values from d − 1 ones and 1 zero"),
            AtMost(1e-10),
        ),
    ),
    statement="All singular values of a norm's Jacobian are 1/σ (RMSNorm: 1/rms) but two (one), which are 0.",
    source="Xiong et al. 2020, arXiv 2002.04745, lemma 3, made exact",
    refuted_by="a singular value that is neither",
    right="As stated at γ = 1; with a gain the values interlace |γ_i|/σ.",
    together="parts",
)
exact(
    "prenorm-identity-path",
    _FAMILY,
    "jacobians.block_jacobians",
    (
        regime(
            "Pre-LN block",
            number("pre-block-jacobian", "largest difference of ∂y/∂x from I + J_F J_N, full matrices", "deviation"),
            AtMost(1e-10),
        ),
        regime(
            "Post-LN block",
            number("post-block-as-if-pre", "largest difference of Post-LN's ∂y/∂x from I + J_F J_N", "deviation"),
            AtLeast(0.01),
        ),
    ),
    statement="In a Pre-LN block ∂y/∂x = I + J_G with G = F∘N: one path avoids the norm; a Post-LN block has none.",
    source=A,
    refuted_by="a Jacobian that differs by more than rounding, or a Post-LN block that has it too",
    right="As stated.",
    together="parts",
)
exact(
    "postnorm-jacobian",
    _FAMILY,
    "jacobians.block_jacobians",
    (
        regime(
            "Post-LN block",
            number("post-block-jacobian", "largest difference of ∂y/∂x from J_N (I + J_F), full matrices", "deviation"),
            AtMost(1e-10),
        ),
    ),
    statement="In a Post-LN block ∂y/∂x = J_N (I + J_F): both paths go through the norm.",
    source=A,
    refuted_by="a Jacobian that differs by more than rounding",
    right="As stated, with J_N taken at x + F(x).",
)
exact(
    "upstream-scale-gradient",
    _FAMILY,
    "scaling.upstream_scale",
    (
        *(
            regime(
                f"{name}, {what}",
                number(f"{norm}-{key}-under-scale", f"largest change of {words}, α = 0.1, 3, 10, ε = 0", "deviation"),
                AtMost(1e-10),
            )
            for name, norm in (("LayerNorm", "layernorm"), ("RMSNorm", "rmsnorm"))
            for what, key, words in (
                ("output", "output", "N(α W h)"),
                ("gradient", "gradient", "α·∂L/∂(αW), relative"),
            )
        ),
        regime(
            "α < 0",
            number("negative-factor-flips-sign", "largest difference of N(−2 W h) from −N(W h)", "deviation"),
            AtMost(1e-10),
        ),
        regime(
            "ε = 1e-5 and α = 0.001",
            number("output-under-scale-with-eps", "largest change of N(α W h)", "deviation"),
            AtMost(1e-10),
            "refuted",
        ),
        regime(
            "a matrix inside a whole Pre-LN model",
            number("pre-block-output-under-scale", "relative change of the features, W_down of block 1 times 10"),
            AtMost(1e-10),
            "refuted",
            contrast=True,
        ),
    ),
    statement="Where a bias-free linear layer z = W h enters a norm, W → αW leaves the output as it is and makes the "
    "gradient 1/α of what it was.",
    source=f"{B}; Zhang and Sennrich 2019, arXiv 1910.07467",
    refuted_by="an output or a gradient that does otherwise",
    right="Exact for α > 0 and ε = 0; α < 0 flips the output's sign; with ε it fails once (ασ)² is not far above ε. "
    "It is a property of the layer directly before the norm: no matrix of a Pre-LN branch has it, because the norm "
    "there reads the whole stream.",
    version=2,
)
exact(
    "scale-invariant-update",
    _FAMILY,
    "scaling.scale_invariant_weights",
    (
        *(
            regime(
                f"{name}, {what}",
                number(f"{placement}-{key}-under-scale", f"relative change of {words} when W_down → 10 W_down"),
                AtMost(1e-8),
            )
            for name, placement in (("Peri-LN", "peri"), ("OLMo 2", "reordered"))
            for what, key, words in (("features", "output", "the features"), ("gradient", "gradient", "10·∂L/∂W_down"))
        ),
        regime(
            "Pre-LN, features",
            number("pre-output-under-scale", "relative change of the features when W_down → 10 W_down"),
            AtMost(1e-8),
            "refuted",
            contrast=True,
        ),
    ),
    statement="With a norm on the branch's output, W₂ → kW₂ leaves the update as it is and makes the gradient 1/k of "
    "what it was.",
    source="OLMo 2, arXiv 2501.00656; Kim et al. 2025 (Peri-LN), arXiv 2502.02732",
    refuted_by="features or a gradient that do otherwise",
    right="Exact where an output norm follows the branch (Peri-LN, OLMo 2, Swin v2); false in Pre-LN.",
    version=2,
)
