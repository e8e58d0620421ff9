"""Exact statements about what number formats keep."""

from typing import Final

from normlab.claims.building import exact, number, regime
from normlab.claims.claim import Statistic
from normlab.claims.exactness import AtLeast, AtMost
from normlab.claims.families.norms import A, B, C
from normlab.claims.rules import Outcome

_FAMILY: Final = "exact: precision"
_FORMATS: Final[tuple[tuple[str, Outcome], ...]] = (
    ("float32", "refuted"),
    ("bfloat16", "supported"),
    ("float16", "supported"),
)


def _error(name: str, words: str) -> Statistic:
    return number(name, f"relative error of {words}", "relative error")


exact(
    "welford-no-cancellation",
    _FAMILY,
    "precision.cancellation",
    (
        *(
            regime(
                f"difference of squares in {dtype}",
                _error(f"difference-of-squares-{dtype}", "the variance ¼ of [1000, 1001] as mean(x²) − mean(x)²"),
                AtLeast(0.1),
                expected,
            )
            for dtype, expected in _FORMATS
        ),
        regime(
            "difference of squares in float32 at a larger mean",
            number("float32-breaks-from", "smallest mean m ≥ 1000 at which [m, m + 1] has an error above 1 %", "mean"),
            AtMost(4096),
        ),
        regime(
            "Welford in float32 at a mean of 100 000",
            _error("welford-float32-at-100000", "the variance ¼ of [100000, 100001] by Welford's updates"),
            AtMost(1e-6),
        ),
    ),
    statement="mean(x²) − mean(x)² loses the variance of [1000, 1001] in finite precision; Welford's updates do not.",
    source=A,
    refuted_by="a format in which the difference of squares gives ¼",
    right="In float32 the difference of squares is exact at a mean of 1000: it first fails at 2048, where a square "
    "has no room left for a quarter. In bfloat16 and float16 it is wrong at 1000 already. Welford's updates are "
    "right in float32 up to 100 000 and beyond.",
)
exact(
    "fp16-square-overflow",
    _FAMILY,
    "precision.overflow",
    (
        regime("300 itself", number("300-in-float16", "|float16(300) − 300|"), AtMost(0)),
        regime("its square in float16", number("square-first-is-finite", "1 if the square is finite"), AtMost(0)),
        regime("float32 first, then the square", number("float-first-error", "|float32(300)² − 90000|"), AtMost(0)),
    ),
    statement="float16 holds 300 and not its square 90000; converting to float32 after squaring comes too late.",
    source=A,
    refuted_by="a finite square in float16",
    right="As stated: the largest float16 is 65504.",
    together="parts",
)
exact(
    "fp32-accumulation",
    _FAMILY,
    "precision.accumulation",
    (
        *(
            regime(
                f"summed in {dtype}",
                _error(f"sum-of-squares-{dtype}", "a running sum of 4096 squares of normal numbers"),
                AtLeast(0.01),
            )
            for dtype in ("bfloat16", "float16")
        ),
        regime(
            "summed in float32",
            _error("sum-of-squares-float32", "a running sum of 4096 squares of normal numbers"),
            AtMost(1e-5),
        ),
    ),
    statement="Statistics of a norm have to be accumulated in float32: half precision loses them.",
    source=f"{A}; {B}; {C}",
    refuted_by="a half-precision sum that is right to a percent",
    right="A running sum of 4096 squares loses about half in bfloat16, because the sum stops growing once an addend "
    "is below its last place, 8 % in float16, and a millionth in float32. Sums by halves lose less.",
    together="parts",
)
