import math
from types import SimpleNamespace

import pytest

from normlab.claims import RegimeVerdict
from normlab.claims.exactness import AtLeast, AtMost
from normlab.claims.rules import Above, Below, EqualWithin, Rule, ZeroWithin
from normlab.reports import _interval
from normlab.reports._interval import compact, extreme, strip


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


@pytest.mark.parametrize(
    ("rule", "accepted"),
    [
        (EqualWithin(0.5, 0.1), (0.4, 0.6)),
        (ZeroWithin(0.1), (-0.1, 0.1)),
        (Above(0.2), (0.2, math.inf)),
        (Below(0.2), (-math.inf, 0.2)),
        (AtMost(0.2), (-math.inf, 0.2)),
        (AtLeast(0.2), (0.2, math.inf)),
    ],
)
def test_what_a_rule_accepts(rule: Rule, accepted: tuple[float, float]) -> None:
    assert rule.accepted == accepted


def known(monkeypatch: pytest.MonkeyPatch, **rules: Rule) -> None:
    regimes = [SimpleNamespace(name=name, rule=rule) for name, rule in rules.items()]
    monkeypatch.setattr(_interval, "CLAIMS", {"claim": SimpleNamespace(regimes=regimes)})


def test_an_upper_bound_accepts_everything_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, any=Below(0.5))
    drawn = strip("claim", regime("any", 0.1, 0.2, 0.3))
    assert drawn is not None and drawn.accepted is not None
    assert drawn.accepted[0] == 0 and drawn.high < drawn.accepted[1] < 100


def test_the_longest_name_that_fits_names_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, deep=Below(0.5), deeper=Above(0.5))
    drawn = strip("claim", regime("deeper (norm=none)", 0.6, 0.7, 0.8))
    assert drawn is not None and drawn.accepted is not None and drawn.accepted[1] == 100


def test_an_exact_statement_names_the_draw_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, most=AtMost(1e-3), least=AtLeast(0.05))
    assert extreme("claim", regime("most", 1e-6, 3e-6, 5e-6)) == "largest of 5 draws: 5.0e-6 (limit 1e-3)"
    assert extreme("claim", regime("least", 0.2, 0.3, 0.4)) == "smallest of 5 draws: 0.2 (limit 0.05)"
    assert [compact(value) for value in (0.0, 0.25, 1234567.0)] == ["0", "0.25", "1.2e6"]
