"""Claims about what a norm costs, on a CPU and on a GPU."""

from typing import Final

from normlab.claims.building import exact, number, regime
from normlab.claims.families.norms import A, B, C
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
                   "gain and bias included, ratio of medians of interleaved runs", "ratio"),
            EqualWithin(2.1, 0.7),
            expected,
        )
        for how, key, words, expected in _WAYS
        for width in (256, 1024, 4096)
    ),
    version=2,
    statement="On a CPU RMSNorm is about twice as fast as LayerNorm, at widths 256, 1024 and 4096.",
    source=C,
    refuted_by="a ratio outside 1.4 to 2.8",
    right="It depends on the implementation. Written out in NumPy LayerNorm makes more passes over memory. torch has "
    "one kernel for LayerNorm on a CPU and composes RMSNorm of several operations: with gain and bias LayerNorm is "
    "about twice as fast there. `normlab bench norms` shows it for a machine.",
    nature="cost",
    history="The margin, a factor of 4/3 about 2.1, the mean of the three ratios that the source prints, was chosen "
    "after runs with seeds from 0 on had been seen; the kept table has other seeds. Times are taken when nothing else "
    "of the run computes.",
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
_GPU_WAYS: Final[tuple[tuple[str, str, str, Outcome], ...]] = (
    ("one operation after another", "eager", "written out in torch", "supported"),
    ("compiled", "compiled", "the same through torch.compile", "refuted"),
    ("fused", "fused", "torch's own operations", "refuted"),
    ("the kernels of normlab", "kernels", "CUDA kernels that read each row once", "refuted"),
)
_GPU_WORDS: Final = "8192 rows of 4096 features in bfloat16, forward, ratio of medians of interleaved runs"
exact(
    "rms-faster-on-gpu",
    _FAMILY,
    "gpu.norm_times",
    tuple(
        regime(how, number(f"gpu-ratio-{way}", f"time of LayerNorm over RMSNorm, {words}, {_GPU_WORDS}", "ratio"),
               Above(1.05), expected)
        for how, way, words, expected in _GPU_WAYS
    ),
    version=2,
    statement="On a GPU RMSNorm is 5 to 15 % faster than LayerNorm (7 to 64 % in its paper).",
    source=f"{B}; {C}; Zhang and Sennrich 2019",
    refuted_by="a fused LayerNorm that is as fast: it need not read its input twice",
    right="Where memory decides and each norm is one kernel that reads its input once, both take the same time. "
    "Written out operation by operation LayerNorm passes over memory more often.",
    nature="cost",
    needs="gpu",
)  # fmt: skip
exact(
    "fused-add-norm-saves-a-read",
    _FAMILY,
    "gpu.fused_add",
    tuple(
        regime(name, number(f"gpu-add-{key}", f"time of an add and a norm over that of both compiled into one kernel "
                            f"that also returns the sum, {_GPU_WORDS}", "ratio"), Above(1.1))
        for name, key in (("LayerNorm", "layernorm"), ("RMSNorm", "rmsnorm"))
    ),
    version=2,
    statement="Fusing the residual add with the norm saves one read and one launch; both outputs are still written.",
    source=A,
    refuted_by="a fused kernel that is no faster than the two",
    right="As stated: five passes over memory become four, so that 1.25 is the most that can be gained.",
    nature="cost",
    needs="gpu",
    together="parts",
)  # fmt: skip
