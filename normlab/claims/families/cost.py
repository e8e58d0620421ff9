"""Claims about what a norm costs on a CPU."""

from typing import Final

from normlab.claims.building import exact, number, regime
from normlab.claims.families.norms import C
from normlab.claims.rules import Above, EqualWithin, Outcome

_FAMILY: Final = "cost"
_WAYS: Final[tuple[tuple[str, str, str, Outcome], ...]] = (
    ("plain NumPy", "numpy", "written out in NumPy", "supported"),
    ("torch", "torch", "torch's own operations", "refuted"),
)

exact(
    "rms-2x-on-cpu",
    _FAMILY,
    "cost.numpy_norms",
    tuple(
        regime(
            f"{how}, d = {width}",
            number(f"{key}-ratio-{width}", f"time of LayerNorm over RMSNorm, {words}, 32 tokens of {width} features, "
                   "ratio of medians of interleaved runs", "ratio"),
            EqualWithin(2.1, 0.7),
            expected,
        )
        for how, key, words, expected in _WAYS
        for width in (256, 1024, 4096)
    ),
    statement="On a CPU RMSNorm is about twice as fast as LayerNorm, at widths 256, 1024 and 4096.",
    source=C,
    refuted_by="a ratio outside 1.4 to 2.8",
    right="It depends on the implementation. Written out in NumPy LayerNorm makes more passes over memory. torch "
    "has one "
    "kernel for LayerNorm on a CPU and composes RMSNorm of several operations: there LayerNorm is about as fast, or "
    "faster.",
    nature="cost",
)  # fmt: skip
exact(
    "rms-memory",
    _FAMILY,
    "cost.saved_memory",
    (
        regime("the norm alone", number("norm-memory-ratio", "bytes kept for the backward pass, LayerNorm over RMSNorm",
                                        "ratio"), Above(1.1), "refuted"),
        regime("a whole block", number("block-memory-ratio", "bytes kept for the backward pass, LayerNorm over RMSNorm",
                                       "ratio"), Above(1.1), "refuted"),
    ),
    statement="The wrong choice of norm costs 15 % more memory.",
    source=C,
    refuted_by="a ratio of LayerNorm's to RMSNorm's memory below 1.1",
    right="A fused norm keeps its input and one or two numbers a token: LayerNorm and RMSNorm alike. torch's "
    "RMSNorm on a "
    "CPU, which is composed of several operations, keeps twice as much as its LayerNorm.",
    nature="cost",
)  # fmt: skip
exact(
    "rms-step-time",
    _FAMILY,
    "cost.step_time",
    (
        regime(
            "a whole step of a small model on a CPU",
            number("step-time-saved", "share of a forward and backward pass that RMSNorm saves, ratio of medians of "
                   "interleaved runs", "share"),
            Above(0.05),
            "refuted",
        ),
    ),
    statement="RMSNorm saves 6 to 10 % of the training time of a whole model.",
    source=C,
    refuted_by="a saving below 5 % of a step",
    right="Not with torch on a CPU, where RMSNorm is composed of several operations and a step gets no faster. On a "
    "GPU it "
    "is another measurement.",
    nature="cost",
)  # fmt: skip
