"""Claims about one optimisation step, or noise on the weights, against depth."""

from typing import Final

from normlab.claims.building import exact, regime, trend
from normlab.claims.claim import Regime
from normlab.claims.families.norms import B
from normlab.claims.rules import Above, EqualWithin, Outcome, Rule

_FAMILY: Final = "one step"
_STEP: Final = "slope on ln L of ln of rms(F(θ − η g) − F(θ))/η for small η, F the features"


def _step(
    name: str, key: str, rule: Rule, expected: Outcome = "supported", words: str = _STEP, *, contrast: bool = False
) -> Regime:
    return regime(name, trend(key, words), rule, expected, contrast=contrast)


for _id, _key, _name, _statement, _source, _right in (
    (
        "deepnorm-update-depth-free",
        "deepnorm",
        "DeepNorm",
        "With DeepNorm one step of gradient descent changes the model's function by an amount that does not depend on "
        "depth.",
        f"{B}; Wang et al. 2022 (DeepNet), arXiv 2203.00555, theorem 4.2",
        "As stated, with β on each of the two factors V and O; on a merged matrix β² would not do.",
    ),
    (
        "subln-update-flat",
        "sub-ln",
        "Sub-LN with gain √ln 2L",
        "With Sub-LN and its initialisation one step of gradient descent changes the function independently of depth.",
        "Wang et al. 2022 (Magneto), arXiv 2210.06423",
        "Over 4 to 32 blocks the change still grows with depth, more slowly than Post-LN's: the gain cancels the "
        "growth "
        "of the bound, ln L, and the bound is reached only in deeper models.",
    ),
    (
        "tfixup-update-flat",
        "t-fixup",
        "T-Fixup, no norms",
        "With T-Fixup's initialisation and no norms one step of gradient descent changes the function independently of "
        "depth.",
        f"{B}; Huang et al. 2020 (T-Fixup)",
        "As stated: no norm is needed for it.",
    ),
):
    exact(
        _id,
        _FAMILY,
        "steps.one_step",
        (_step(_name, f"sgd-{_key}", EqualWithin(0, 0.15), "refuted" if _key == "sub-ln" else "supported"),),
        statement=_statement,
        source=_source,
        refuted_by="a log-log slope on depth outside ± 0.15",
        right=_right,
        nature="law",
    )

exact(
    "postln-update-grows",
    _FAMILY,
    "steps.one_step",
    (
        _step("Post-LN", "sgd-post", Above(0.3)),
        _step("Pre-LN", "sgd-pre", Above(0.3), contrast=True),
        _step("DeepNorm", "sgd-deepnorm", Above(0.3), "refuted", contrast=True),
    ),
    statement="In Post-LN the change of the function in a first step grows with depth.",
    source="Wang et al. 2022 (DeepNet), arXiv 2203.00555",
    refuted_by="a log-log slope below 0.3",
    right="As stated, with a slope of about 1 or more; Pre-LN's grows too, about half as fast, and DeepNorm's does "
    "not.",
    nature="law",
)
exact(
    "branch-alpha-lr-rule",
    _FAMILY,
    "steps.one_step",
    tuple(
        _step(
            f"{optimiser}, α = {alpha}",
            f"{key}-branch-{word}",
            EqualWithin(-power, 0.25),
            words=f"{_STEP}; g the gradient{'’s sign' if key == 'sign' else ''}; η ~ L^{power:g} levels it",
        )
        for optimiser, key, scale in (("gradient descent", "sgd", 2), ("sign descent", "sign", 1))
        for alpha, word, power in (("½", "half", scale * 0.5 - 1), ("1", "one", scale * 1.0 - 1))
    ),
    statement="With branches scaled by L^−α the learning rate that keeps the change of the function independent of "
    "depth "
    "is L^(α−1) for Adam and L^(2α−1) for gradient descent.",
    source="Yang et al. 2023, arXiv 2310.02244; Dey et al. 2025 (CompleteP), arXiv 2505.01618",
    refuted_by="a slope of the change per learning rate that is more than 0.25, half the distance between the "
    "rules, from the rule's",
    right="As stated, with sign descent for Adam's first step.",
    nature="law",
    together="parts",
)


exact(
    "perturbation-amplification",
    _FAMILY,
    "steps.weight_noise",
    (
        _step("Post-LN faster than ln L, whose slope from 4 to 32 is 0.44", "noise-post", Above(0.6),
              words="slope on ln L of ln of mean |ΔF|²/ε² for relative noise ε on all matrices"),
        _step("Pre-LN like ln L, whose slope from 4 to 32 is 0.44", "noise-pre", EqualWithin(0.44, 0.25),
              words="slope on ln L of ln of mean |ΔF|²/ε² for relative noise ε on all matrices"),
        _step("DeepNorm like L^−½", "noise-deepnorm", EqualWithin(-0.5, 0.15),
              words="slope on ln L of ln of mean |ΔF|²/ε² for relative noise ε on all matrices"),
    ),
    statement="Noise on the weights is amplified in proportion to L in Post-LN and to ln L in Pre-LN; DeepNorm "
    "damps it "
    "like L^−½.",
    source="Liu et al. 2020 (Admin), arXiv 2004.08249; Wang et al. 2022 (DeepNet), arXiv 2203.00555",
    refuted_by="other laws",
    right="As stated.",
    nature="law",
    together="parts",
)  # fmt: skip
