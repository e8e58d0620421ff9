"""Claims about gradient exponents at initialisation: activations, widths, norms without statistics."""

from typing import Any, Final

import numpy as np
import pandas as pd

from normlab.claims.building import Models, computation, exact, number, regime, swept, trend
from normlab.claims.claim import Claim, Design, Gap, Sample, Statistic, register_claim
from normlab.claims.exactness import AtMost
from normlab.claims.families.growth import grid
from normlab.claims.families.norms import SEEN
from normlab.claims.gains import GAINS
from normlab.claims.profiles import MEAN_SQUARE, STREAM_GRADIENT, deepest, misfit, on_stream, over_layers, profile, rate
from normlab.claims.rules import Above, Below, EqualWithin
from normlab.fits import Curves, curves
from normlab.fits.intervals import Floats

_FAMILY: Final = "backward"
_MLP: Final = "attention == 'none' and norm == 'rmsnorm' and init == 'fan-in'"
_PLACEMENTS: Final = {"pre": "Pre-LN", "post": "Post-LN"}
_ACTIVATIONS: Final = ["relu", "gelu", "tanh", "swiglu"]


def _mlp_grid(placement: str, depth: int, **axes: Any) -> dict[str, Any]:
    return grid(
        placement=placement, attention="none", norm="rmsnorm", init="fan-in", activation=_ACTIVATIONS, depth=depth
    )


def _models(placement: str, activation: str) -> Models:
    return Models(
        f"placement == '{placement}' and {_MLP} and activation == '{activation}'",
        f"{_PLACEMENTS[placement]} models of MLPs alone with RMSNorm, fan-in initialisation and {activation}",
    )


def _gain(activation: str) -> Statistic:
    branch = GAINS[activation]
    wanted = (1 + branch.backward) / (1 + branch.forward)

    def excess(found: Curves) -> Floats:
        return np.asarray(np.exp(-2 * rate(found)) - wanted)

    return Statistic(
        f"squared gain per block of l2 at site stream_grad, output to input, minus (1 + χ)/(1 + v) = {wanted:.4f}",
        "squared gain", STREAM_GRADIENT, profile("l2", excess, first=1),
    )  # fmt: skip


swept(
    "gradient-gain-rule",
    _FAMILY,
    tuple(
        regime(activation, _gain(activation), EqualWithin(0, 0.05), among=_models("post", activation))
        for activation in _ACTIVATIONS
    ),
    (_mlp_grid("post", 16),),
    statement="In Post-LN a sub-layer multiplies the squared gradient, from output to input, by (a² + χ)/(a² + v), "
    "with "
    "v and χ the branch's gains of squared signal and squared Jacobian.",
    source="a derivation; cf. Xiong et al. 2020, arXiv 2002.04745, and Kedia et al. 2024, arXiv 2403.09635",
    refuted_by="a gain that differs by more than 0.05 from the rule",
    right="As stated: 1 for ReLU (level), 1.02 for GELU, 1.05 for tanh, 1.28 for SwiGLU (growing toward the input).",
    plot="gradient_profile",
    together="parts",
)


def _zeta(activation: str) -> Statistic:
    def sample(rows: pd.DataFrame) -> Sample:
        found = on_stream(rows, "l2")
        return Sample(-2 * found.values, found.depths, found.notes)

    return Statistic(
        "minus twice the slope of ln l2 at site stream_grad on ln q_ℓ over the blocks, in the deepest models",
        "exponent", f"({STREAM_GRADIENT}) or ({MEAN_SQUARE})", sample,
    )  # fmt: skip


swept(
    "activation-exponents",
    _FAMILY,
    tuple(
        regime(
            f"{activation}, ζ = {GAINS[activation].exponent:.3f}",
            _zeta(activation),
            EqualWithin(GAINS[activation].exponent, 0.2),
            among=_models("pre", activation),
        )
        for activation in _ACTIVATIONS
    ),
    (_mlp_grid("pre", 32),),
    statement="In a Pre-LN stack of MLPs the mean squared Jacobian from block ℓ to the output is (q_L/q_ℓ)^ζ, with "
    "ζ = χ/v "
    "of the activation.",
    source="a derivation; cf. Doshi et al. 2023, arXiv 2111.12143",
    refuted_by="an exponent more than 0.2 from χ/v",
    right="As stated: 1 for ReLU, 1.07 for GELU, 1.18 for tanh, 2.07 for SwiGLU.",
    plot="gradient_profile",
    together="parts",
    widths=(128, 256),
    version=2,
    history=f"The margin of 0.2 and a width of at least 128 were chosen {SEEN}",
)


def lyapunov(rows: pd.DataFrame) -> Sample:
    """Return each seed's 2 ℓ λ_ℓ between ℓ = L/4 and L: 2 ln(G_{L/4}/G_L)/ln 4, G the stream's gradient.

    Raises:
        Gap: the models are too shallow.
    """
    deep = deepest(rows, 16)
    depth = int(deep["depth"].max())
    found = over_layers(deep, "l2", depth // 4)
    ratio = np.log(found.y[:, 0] / found.y[:, -1])
    return Sample(2 * ratio / np.log(found.x[-1] / found.x[0]), (depth,), found.left_out)


_LYAPUNOV = Statistic(
    "2 ln(G_{L/4}/G_L)/ln 4 with G the l2 at site stream_grad: the mean of 2ℓλ_ℓ over ln ℓ", "2ℓλ", STREAM_GRADIENT,
    lyapunov,
)  # fmt: skip

swept(
    "lyapunov-half-zeta",
    _FAMILY,
    (
        regime("MLP only, ReLU (ζ = 1)", _LYAPUNOV, EqualWithin(1, 0.15), among=_models("pre", "relu")),
        regime(
            "full block",
            _LYAPUNOV,
            EqualWithin(1, 0.15),
            "refuted",
            query="placement == 'pre' and attention == 'softmax' and init == 'fan-in'",
            models="Pre-LN models with softmax attention and fan-in initialisation",
        ),
    ),
    (
        _mlp_grid("pre", 64, activation="relu"),
        grid(placement="pre", norm="rmsnorm", init="fan-in", depth=64),
    ),
    statement="In Pre-LN the gradient's local exponent λ_ℓ falls like ζ/(2ℓ), with ζ = χ/v.",
    source="a derivation; cf. Doshi et al. 2023, arXiv 2111.12143",
    refuted_by="a 2ℓλ_ℓ that is more than 0.15 from ζ",
    right="As stated for MLPs alone. In a block with attention the stream also grows by what returns hardly any "
    "gradient: "
    "2ℓλ_ℓ tends to χ of the block over the slope of q, which is much less.",
    plot="gradient_profile",
)

register_claim(
    Claim(
        id="grad-width-exponent",
        version=1,
        family=_FAMILY,
        statement="The last layer's gradient grows with the width like d·√ln d.",
        source="Xiong et al. 2020, arXiv 2002.04745, theorem 1, read as a law",
        nature="law",
        regimes=tuple(
            regime(
                name,
                trend(
                    f"last-gradient-{key}",
                    "slope of ln G, grad_norm of role down in the last block under a unit probe loss, on ln d, "
                    "d = 32 to 256",
                    x="call",
                ),
                EqualWithin(1.1, 0.25),
                "refuted",
                compared=("call",),
            )
            for name, key in (("Pre-LN", "pre"), ("Post-LN", "post"))
        ),
        refuted_by="a log-log slope on the width outside 0.85 to 1.35",
        right_statement="The theorem is an upper bound, which bounds every entry by a whole vector's norm. With a "
        "gradient "
        "of unit size at the output the exponent is ½.",
        design=Design(evidence=(computation("gradients.width_law"),)),
    )
)
exact(
    "peri-grad-invariance",
    _FAMILY,
    "scaling.inner_scale",
    (
        regime(
            "Peri-LN",
            number("peri-gradient-under-inner-scale", "relative change of ∂L/∂W_down when W_up → 10 W_up"),
            AtMost(1e-8),
        ),
        regime(
            "Pre-LN",
            number("pre-gradient-under-inner-scale", "relative change of ∂L/∂W_down when W_up → 10 W_up"),
            AtMost(1e-8),
            "refuted",
            contrast=True,
        ),
    ),
    statement="The output norm makes W_down's gradient independent of the size of the hidden activations.",
    source="Kim et al. 2025 (Peri-LN), arXiv 2502.02732, proposition 3.1",
    refuted_by="a gradient that changes when W_up is scaled",
    right="Exact in Peri-LN with a degree-1 homogeneous MLP (ReLU) and ε = 0; in Pre-LN the gradient grows with the "
    "activations.",
    version=2,
)


def _stretched(found: Curves) -> Floats:
    return misfit(found, np.sqrt, np.log)


def apjn(rows: pd.DataFrame) -> Sample:
    """Return each seed's ln of the misfit of ln APJN to √L over that to ln L.

    Raises:
        Gap: too few depths.
    """
    found = curves(rows, str(rows["quantity"].iloc[0]), x="layer").positive().balanced()
    if len(found.x) < 4:
        raise Gap(f"4 depths are needed and {len(found.x)} can be used")
    return Sample(_stretched(found), (int(found.x[-1]),), found.left_out)


register_claim(
    Claim(
        id="dyt-stretched-exponential",
        version=1,
        family=_FAMILY,
        statement="With DyT or Derf for norms the mean squared Jacobian grows like exp(√(L/λ)), with LayerNorm like a "
        "power of L.",
        source="Alekseev 2026, arXiv 2604.11890",
        nature="law",
        regimes=tuple(
            regime(
                name,
                Statistic(
                    "ln of squared residuals of ln APJN(0 → L) on √L over those on ln L, MLP only, L = 4 to 64",
                    "log ratio",
                    f"quantity == 'evidence' and name == 'apjn-{key}'",
                    apjn,
                ),
                rule,
                query=f"quantity == 'evidence' and name == 'apjn-{key}'",
                models=f"Jacobians with {name}",
            )
            for name, key, rule in (
                ("DyT", "dyt", Below(0)),
                ("Derf", "derf", Below(0)),
                ("LayerNorm", "layernorm", Above(0)),
            )  # fmt: skip
        ),
        refuted_by="a DyT or Derf that a power of L fits better, or a LayerNorm that √L fits better",
        right_statement="As stated: a bounded function's derivative falls like q^(−½) where a norm's falls like 1/q.",
        together="parts",
        design=Design(
            evidence=(computation("gradients.partial_jacobians"),),
            wider=(computation("gradients.partial_jacobians_wide"),),
        ),
    )
)
