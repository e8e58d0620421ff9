"""Claims about sums of updates as random walks."""

from typing import Final

from normlab.claims.building import computation, exact, number, regime, trend
from normlab.claims.claim import Claim, Design, register_claim
from normlab.claims.families.growth import FULL, NONE, RATIO, grid
from normlab.claims.families.norms import SEEN, B
from normlab.claims.rules import Above, EqualWithin, Outcome

_FAMILY: Final = "forward"
_BIASES: Final[tuple[tuple[str, str, str, Outcome], ...]] = (
    ("feature mean ½, judged by rms", "shared-mean-rms", "the rms", "supported"),
    ("a shared direction of feature mean 0", "shared-direction-rms", "the rms", "supported"),
    (
        "feature mean ½, judged by the standard deviation",
        "shared-mean-deviation",
        "the standard deviation over features",
        "refuted",
    ),
    ("feature mean ± ½, a sign drawn for each layer", "drawn-mean-rms", "the rms", "refuted"),
    ("feature mean 0", "zero-mean-rms", "the rms", "refuted"),
)

register_claim(
    Claim(
        id="depth-12-to-80-grows-2.6x",
        version=1,
        family=_FAMILY,
        statement="From 12 to 80 layers the amplitude of the residual stream grows by a factor of about 2.6.",
        source=B,
        nature="law",
        regimes=(
            regime(
                "independent updates alone",
                number("walk-ratio-without-start", "rms of a sum of 80 unit normal updates over that of 12", "ratio"),
                EqualWithin(2.6, 0.05),
            ),
            regime(
                "independent updates onto a unit embedding",
                number("walk-ratio-with-start", "the same, added to a unit normal start", "ratio"),
                EqualWithin(2.6, 0.05),
                "refuted",
            ),
            regime("Pre-LN without attention", RATIO, EqualWithin(2.6, 0.05), "refuted", among=NONE),
            regime("Pre-LN, full block", RATIO, EqualWithin(2.6, 0.05), "refuted", among=FULL),
        ),
        refuted_by="a factor outside 2.55 to 2.65",
        right_statement="√(80/12) = 2.58 holds for updates of equal size and nothing else. The embedding makes it "
        "√((q₀ + 80v)/(q₀ + 12v)): less the smaller v is. In a full block it is larger than that, because increments "
        "grow while tokens align.",
        plot="stream_growth",
        history="The margin is half a unit of the place to which the factor was printed.",
        design=Design(
            grids=(grid(placement="pre", attention=["none", "softmax"], depth=80),),
            evidence=(computation("walks.ideal_walk"),),
        ),
    )
)
register_claim(
    Claim(
        id="nonzero-mean-updates-grow-faster",
        version=1,
        family=_FAMILY,
        statement="Updates whose mean is not zero drive the stream in one direction, so that its amplitude grows "
        "faster "
        "than √ℓ.",
        source=B,
        nature="law",
        regimes=tuple(
            regime(
                name,
                number(key, "log-log slope, from 16 to 256 updates, of " + what, "slope"),
                Above(0.7),
                expected,
            )
            for name, key, what, expected in _BIASES
        ),
        refuted_by="a slope below 0.7",
        right_statement="What counts is a direction that the updates of different layers share. A feature mean is "
        "one, if "
        "its sign is the same in all layers; it shows in the mean square (1089 after 64 unit updates of mean ½, "
        "against "
        "65) and not in the variance, from which LayerNorm removes it. A mean whose sign changes between layers, or "
        "none, gives √ℓ.",
        design=Design(evidence=(computation("walks.biased_walks"),)),
        history=f"The bound of 0.7, between the ½ of independent updates and the 1 of a shared direction, was chosen "
        f"{SEEN}",
    )
)
exact(
    "deepnorm-near-identity",
    _FAMILY,
    "walks.turned_streams",
    (
        regime(
            "DeepNorm",
            trend("turned-deepnorm", "slope on ln L of ln(1 − cos(x_0, x_L)), mean over tokens, RMSNorm"),
            EqualWithin(-0.5, 0.1),
        ),
        regime(
            "Post-LN",
            trend("turned-post", "slope on ln L of ln(1 − cos(x_0, x_L)), mean over tokens, RMSNorm"),
            EqualWithin(-0.5, 0.1),
            "refuted",
            contrast=True,
        ),
    ),
    statement="A DeepNorm stack starts closer to the identity the deeper it is: its stream turns by an angle whose "
    "1 − cos falls like L^−½.",
    source="a derivation from Wang et al. 2022 (DeepNet), arXiv 2203.00555",
    refuted_by="a log-log slope on depth outside −0.5 ± 0.1",
    right="As stated; a Post-LN stream has turned to something unrelated to its start at every depth in use.",
    nature="law",
    version=2,
    wider=("walks.turned_streams_wide",),
    history="Version 1 had a margin of 0.15; ± 0.1 is the one that all statements about a power of L have.",
)
