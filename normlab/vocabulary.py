"""What the table's rows mean: every site and every quantity, defined as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from normlab.registry import Definitions


@dataclass(frozen=True)
class Site:
    """A place in a model at which a tensor is observed.

    Attributes:
        name: the value of the column ``site``.
        definition: which tensor it is.
        default: whether it is recorded without being asked for.
        gradient_of: for a gradient, the site whose tensor it belongs to.
    """

    name: str
    definition: str
    default: bool = True
    gradient_of: str = ""


@dataclass(frozen=True)
class Quantity:
    """A number that is computed from the tensor at a site.

    Attributes:
        name: the value of the column ``quantity``.
        definition: the formula, in words and symbols.
        unit: how an axis is labelled, in units of the observed tensor's entries.
        of: ``activation``, ``gradient``, ``update`` (a pair: update and skip), ``branch`` (a pair:
            branch and input), ``parameter``, ``tensor`` (any) or ``model``.
    """

    name: str
    definition: str
    unit: str
    of: Literal["activation", "gradient", "update", "branch", "parameter", "tensor", "model"]


_FORWARD_SITES: Final = (
    Site(
        "stream",
        "the residual stream after the sub-layer (after an outer norm, where there is one); "
        "layer 0, sub-layer embed: what the first block receives",
    ),
    Site("stream2", "the second residual stream of a placement with two streams, after the sub-layer"),
    Site("skip", "what the update is added to: a·x, N(x), or x plus the block's input, as the placement says"),
    Site("update", "what is added to the skip, after output norm and branch scale"),
    Site("sum", "skip plus update, where an outer norm or scale makes it differ from the stream"),
    Site("input", "what the sub-layer's first matrix product sees, after inner norm, gain and input scale"),
    Site("memory", "what the key and value products of cross-attention see"),
    Site("branch", "what the sub-layer's last matrix product gives, before output norm and branch scale"),
    Site("final", "the stream after the final norm"),
    Site("query", "queries per head, after QK-norm and rotation", default=False),
    Site("key", "keys per head, after QK-norm and rotation", default=False),
    Site("value", "values per head", default=False),
    Site(
        "logits", "attention logits per head, scaled and before the softmax; masked pairs never counted", default=False
    ),
    Site("output", "the output of a module that is not part of a transformer's plan", default=False),
)

_GRADIENT_SITES: Final = tuple(
    Site(
        f"{of}_grad",
        f"gradient of the loss at the tensor of the site {of}",
        default=of in ("stream", "sum", "input", "branch", "update"),
        gradient_of=of,
    )
    for of in ("stream", "stream2", "update", "sum", "input", "memory", "branch", "final", "output")
)

#: Every site, in the order in which rows are sorted.
SITES: Final[Mapping[str, Site]] = Definitions("site", (*_FORWARD_SITES, *_GRADIENT_SITES))

#: What an inspection of one model measures beside the recorder.
INSPECTED: Final = (
    Quantity(
        "bulk_mean_square",
        "mean_square without the token of each sequence that has the largest rms",
        "squared units",
        "activation",
    ),
    Quantity("bulk_rms", "root of bulk_mean_square", "units", "activation"),
    Quantity("top_share", "share of Σ x² that the token of each sequence with the largest rms holds", "", "activation"),
    Quantity("massive_ratio", "max_abs/median_rms: how far the largest entry stands out", "", "activation"),
    Quantity("median_update_ratio", "median over tokens of ‖u‖/‖s‖ for skip s and update u", "", "activation"),
    Quantity("block_change", "median over tokens of ‖x_ℓ − x_{ℓ−1}‖/‖x_{ℓ−1}‖ of a block's stream", "", "activation"),
    Quantity(
        "bf16_lost_share",
        "median over tokens of ‖fl(s + u) − (s + u)‖/‖u‖ for skip s and update u, both rounded to bfloat16: what "
        "a residual sum in bfloat16 loses",
        "",
        "activation",
    ),
    Quantity("fp16_doublings", "log₂(65504/max_abs): doublings left before fp16 overflows", "doublings", "tensor"),
)

#: Why what a block inherits and what it adds do not sum to the divergence.
NO_SUM: Final = (
    "Inherited and added do not sum to the divergence: the two differences are vectors, which add up and may cancel, "
    "and their lengths do not add (besides, each number is of a median token of its own)."
)
#: What a comparison of two models or runs, A and B, gives.
COMPARED: Final = (
    Quantity("divergence", "median over tokens of ‖x_B − x_A‖/‖x_A‖ for the streams of A and B", "", "model"),
    Quantity("divergence_worst", "largest over tokens of what divergence is the median of", "", "model"),
    Quantity(
        "inherited",
        "median over tokens of ‖x_B − y‖/‖x_A‖, y what the block of B makes of the stream, and of the memory "
        "for cross-attention, that A gives to its own: what came from before; x_B − x_A is the sum of both parts",
        "",
        "model",
    ),
    Quantity("added", "median over tokens of ‖y − x_A‖/‖x_A‖, y as for inherited: what this block adds", "", "model"),
    Quantity("added_worst", "largest over tokens of what added is the median of", "", "model"),
    Quantity(
        "ratio",
        "B over A, the geometric mean over seeds: of median_rms at streams, of update_ratio at updates, of rms at "
        "other activations, of l2 at gradients, of grad_norm of parameters",
        "",
        "model",
    ),
    Quantity("ratio_added", "ratio of a stream over that after the block before", "", "model"),
)

#: Every quantity, in the order in which rows are sorted.
QUANTITIES: Final[Mapping[str, Quantity]] = Definitions(
    "quantity",
    (
        Quantity("mean_square", "mean over tokens and features of x²", "squared units", "activation"),
        Quantity("rms", "root of mean_square", "units", "activation"),
        Quantity("mean", "mean over tokens and features of x", "units", "activation"),
        Quantity(
            "variance",
            "mean over tokens of the population variance across features (LayerNorm's v); "
            "mean_square = variance + mean over tokens of (feature mean)²",
            "squared units",
            "activation",
        ),
        Quantity(
            "median_rms",
            "median over tokens of the token's rms (an even count: mean of the two middle "
            "values; above 65 536 tokens from a logarithmic histogram, error at most 0.5 %)",
            "units",
            "activation",
        ),
        Quantity("max_abs", "largest absolute value of an entry", "units", "tensor"),
        Quantity(
            "kurtosis",
            "mean over tokens of E[(x−μ)⁴]/v² across features, constant tokens left out (3(d−1)/(d+1) for a Gaussian)",
            "",
            "activation",
        ),
        Quantity(
            "token_cosine",
            "mean cosine over all ordered pairs of different positions of a sequence, pooled "
            "over sequences, zero tokens left out (1: rank collapse)",
            "",
            "activation",
        ),
        Quantity(
            "token_overlap",
            "ratio of means p/q: mean ⟨x_i, x_j⟩ over ordered pairs of different positions of a sequence ÷ mean ‖x_i‖²",
            "",
            "activation",
        ),
        Quantity("update_ratio", "rms(update)/rms(skip)", "", "update"),
        Quantity("alignment", "⟨u, s⟩/(‖u‖‖s‖) of update u and skip s over all tokens", "", "update"),
        Quantity(
            "covariance",
            "mean over tokens of the covariance across features of update and skip; "
            "variance(sum) = variance(skip) + variance(update) + 2·covariance",
            "squared units",
            "update",
        ),
        Quantity("branch_gain", "mean_square(branch)/mean_square(input)", "", "branch"),
        Quantity(
            "lost_share",
            "rms(stored sum − exact sum of skip and update)/rms(update): what rounding in the add ate",
            "",
            "update",
        ),
        Quantity("l2", "Euclidean norm over all tokens and features", "units", "gradient"),
        Quantity(
            "grad_coherence",
            "‖Σ_i g_i‖²/(n Σ_i ‖g_i‖²) over the n tokens of a sequence, pooled over "
            "sequences (1: every token has the same gradient; 1/n: orthogonal ones)",
            "",
            "gradient",
        ),
        Quantity(
            "grad_norm",
            "Euclidean norm of the loss's gradient with respect to one role's parameters "
            "(role all: of every parameter of the sub-layer)",
            "loss per unit",
            "parameter",
        ),
        Quantity("grad_rms", "root mean square over entries of a parameter's gradient", "loss per unit", "parameter"),
        Quantity("param_rms", "root mean square over entries of a parameter", "units", "parameter"),
        Quantity("nonfinite", "number of NaN and infinite entries", "entries", "tensor"),
        Quantity("count", "number of tokens that entered", "tokens", "tensor"),
        Quantity("loss", "value of the loss; of several passes in one step, the mean of theirs", "loss", "model"),
        Quantity("apjn", "averaged partial Jacobian norm E‖∂x_t/∂x_s‖²_F/(n d) from layer to to_layer", "", "model"),
        Quantity("singular_value", "singular value of the Jacobian from layer to to_layer", "", "model"),
        Quantity(
            "lyapunov",
            "logarithmic growth of a tangent vector: ½ ln of the mean square by which the map from layer to to_layer "
            "stretches random vectors; under the name 'mean log' the mean of ln ‖Jv‖/‖v‖, under 'qr i' exponent i of "
            "the Lyapunov spectrum",
            "nats per layer",
            "model",
        ),
        Quantity("evidence", "number that a claim computed beside the sweep; the column name says which", "", "model"),
        *INSPECTED,
        *COMPARED,
    ),
)
