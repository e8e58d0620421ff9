import math

import numpy as np
import pytest
from scipy import stats

from normlab.claims import AtMost, Below, EqualWithin, Size, ZeroWithin
from normlab.claims.finite_size import finite_size


def size(width, values):
    values = np.asarray(values, dtype=float)
    return Size(width=width, deepest=8, verdict="supported", effect=float(values.mean()), low=-1.0, high=1.0,
                sd=float(values.std(ddof=1)), n_seeds=len(values))  # fmt: skip


WIDE, NARROW = np.array([0.48, 0.5, 0.49, 0.5]), np.array([0.4, 0.43, 0.38, 0.41, 0.45])


def test_the_change_has_the_interval_of_welchs_test():
    found = finite_size((size(128, WIDE), size(64, NARROW)), EqualWithin(0.5, 0.1))
    expected = stats.ttest_ind(WIDE, NARROW, equal_var=False).confidence_interval(0.95)
    assert found.change == pytest.approx(WIDE.mean() - NARROW.mean())
    assert (found.change_low, found.change_high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("rule, deviation", [
    (EqualWithin(0.5, 0.1), "shrinks"), (ZeroWithin(0.15), "grows"), (EqualWithin(0.45, 0.1), "level"),
    (Below(0), ""), (AtMost(1e-10), ""),
])  # fmt: skip
def test_a_deviation_is_from_what_the_rule_asserts(rule, deviation):
    found = finite_size((size(128, WIDE), size(64, NARROW)), rule)
    assert found.deviation == deviation
    assert (deviation == "") == (found.target is None)
    assert "0.408 at width 64" not in found.words and "at width 64, " in found.words


def test_a_deviation_that_changes_sign_shrinks_by_its_size():
    found = finite_size((size(128, WIDE + 0.02), size(64, NARROW)), EqualWithin(0.5, 0.1))
    assert found.deviation == "shrinks"


def test_one_width_shows_nothing_and_one_seed_no_interval():
    assert finite_size((size(64, WIDE),), ZeroWithin(0.1)) is None
    lone = Size(width=64, deepest=8, verdict="inconclusive", effect=0.3, low=-math.inf, high=math.inf, sd=math.nan,
                n_seeds=1)  # fmt: skip
    found = finite_size((size(128, WIDE), lone), ZeroWithin(0.1))
    assert (found.change_low, found.deviation, found.agrees) == (-math.inf, "level", False)
    assert "width 64 alone is inconclusive" in found.words
