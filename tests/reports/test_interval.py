import math

from normlab.claims import RegimeVerdict
from normlab.reports._interval import strip


def regime(name: str, low: float, effect: float, high: float) -> RegimeVerdict:
    return RegimeVerdict(
        name=name,
        spec={},
        verdict="supported",
        effect=effect,
        unit="slope",
        low=low,
        high=high,
        level=0.98,
        estimator="",
        margin=0.1,
        rule="",
        n_seeds=5,
        depths=(4,),
        widths=(128,),
        data="text",
    )


def test_an_interval_lies_beside_the_values_that_its_rule_accepts() -> None:
    drawn = strip("preln-grad-shrinks-with-depth", regime("final norm on", -0.55, -0.5, -0.45))
    assert drawn is not None and drawn.accepted is not None
    assert drawn.accepted[0] < drawn.low < drawn.effect < drawn.high < drawn.accepted[1]
    assert [tick.label for tick in drawn.ticks] == ["−0.6", "−0.4", "0"]


def test_a_bound_accepts_everything_above_it() -> None:
    drawn = strip("postln-output-grad-large", regime("against depth", 0.0, 0.1, 0.2))
    assert drawn is not None and drawn.accepted is not None
    assert drawn.accepted[0] < drawn.low and drawn.accepted[1] == 100


def test_without_a_finite_interval_nothing_is_drawn() -> None:
    assert strip("unknown", regime("any", -math.inf, 0.5, math.inf)) is None
    drawn = strip("unknown", regime("any", 0.4, 0.5, 0.6))
    assert drawn is not None and drawn.accepted is None
