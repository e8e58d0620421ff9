"""Claims about queries, keys and logits at initialisation."""

from typing import Final

from normlab.claims.building import computation, regime, trend
from normlab.claims.claim import Claim, Design, register_claim
from normlab.claims.families.norms import C
from normlab.claims.rules import Above, Below, Outcome

_FAMILY: Final = "forward"
_QUERIES: Final[tuple[tuple[str, str, Outcome], ...]] = (
    ("Pre-LN", "pre", "refuted"),
    ("without norms", "none", "supported"),
)

register_claim(
    Claim(
        id="qk-norm-grows-with-depth",
        version=2,
        family=_FAMILY,
        statement="The norms of queries and keys grow with depth in a deep transformer.",
        source=C,
        nature="trend",
        regimes=tuple(
            regime(
                f"{name}, {role}",
                trend(f"{role}-rms-{key}", f"slope of ln rms at site {role} on ln ℓ, 16 blocks", x="layer"),
                Above(0.1),
                expected,
            )
            for name, key, expected in _QUERIES
            for role in ("query", "key")
        )
        + tuple(
            regime(
                f"trained checkpoints, {role}",
                trend(f"{role}-rms-checkpoint", f"slope of ln rms at site {role} on ln ℓ", x="layer"),
                Above(0.1),
                models="trained checkpoints",
                not_tested="weights",
            )
            for role in ("query", "key")
        ),
        refuted_by="norms whose log-log slope on ℓ is below 0.1",
        right_statement="Not at initialisation in Pre-LN: queries and keys come from a normed input, and their rms "
        "is the "
        "same in every block. Without norms they grow with the stream. Trained checkpoints are another question.",
        design=Design(
            evidence=(computation("attention.query_scale"),), wider=(computation("attention.query_scale_wide"),)
        ),
    )
)
register_claim(
    Claim(
        id="softmax-saturation-kills-gradient",
        version=1,
        family=_FAMILY,
        statement="Large attention logits saturate the softmax, and its gradient vanishes.",
        source=C,
        nature="trend",
        regimes=(
            regime(
                "gradient at the logits",
                trend("logit-gradient", "slope of ln median-over-queries ‖∂L/∂logits‖ on ln of the logits' factor, "
                      "1 to 64", x="call"),
                Below(-0.2),
            ),
            regime(
                "gradient at the attention's input",
                trend("input-gradient", "slope of ln ‖∂L/∂input‖ on ln of the logits' factor, 1 to 64", x="call"),
                Below(-0.2),
                "refuted",
            ),
        ),
        refuted_by="a gradient that does not fall as the logits grow",
        right_statement="The gradient at the logits vanishes for a typical query. The gradient at the input does "
        "not: it "
        "also comes through the values, and a few queries between two keys get a factor that grows with the logits.",
        design=Design(evidence=(computation("attention.saturation"),)),
    )
)  # fmt: skip
