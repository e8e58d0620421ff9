import math

import numpy as np
import pytest
from scipy import stats

from normlab import fits
from normlab.errors import DataError


def test_interval_is_students_t():
    values = np.array([0.2, -0.1, 0.4, 0.3, 0.05])
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.98)
    interval = fits.seed_interval(values, level=0.98)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert interval.se == pytest.approx(stats.sem(values))


def test_interval_covers_the_truth_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(0.3, 1.0, size=(2000, 5))
    intervals = [fits.seed_interval(draw, level=0.9) for draw in draws]
    assert np.mean([interval.low < 0.3 < interval.high for interval in intervals]) == pytest.approx(0.9, abs=0.02)


def test_one_seed_bounds_nothing():
    interval = fits.seed_interval([1.0])
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert fits.p_above([1.0], 0.0) == 1.0


def test_one_sided_p_values_agree_with_scipy():
    values = [0.2, -0.1, 0.4, 0.3, 0.05]
    assert fits.p_above(values, 0.1) == pytest.approx(stats.ttest_1samp(values, 0.1, alternative="greater").pvalue)
    assert fits.p_below(values, 0.1) == pytest.approx(stats.ttest_1samp(values, 0.1, alternative="less").pvalue)


def test_equal_values_have_a_point_for_an_interval():
    interval = fits.seed_interval([2.0, 2.0, 2.0])
    assert interval.low == interval.high == 2.0
    assert (fits.p_above([2.0, 2.0], 1.0), fits.p_below([2.0, 2.0], 1.0)) == (0.0, 1.0)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_values_that_are_not_one_finite_number_a_seed_are_refused(values):
    with pytest.raises(DataError, match="one"):
        fits.seed_interval(values)


def test_equivalence_is_two_one_sided_tests():
    values = np.random.default_rng(1).normal(-0.5, 0.05, 8)
    test = fits.equivalence(values, 0.1, target=-0.5, alpha=0.01)
    assert test.outcome == "equivalent"
    assert -0.6 < test.low < test.high < -0.4
    assert test.level == pytest.approx(0.98)
    assert fits.equivalence(values, 0.1, target=0.0, alpha=0.01).outcome == "different"
    assert fits.equivalence(values[:2], 0.1, target=-0.45, alpha=0.01).outcome == "undecided"


@pytest.mark.parametrize("edge", [-0.1, 0.1])
def test_on_the_margins_edge_each_false_outcome_comes_at_alpha(edge):
    draws = np.random.default_rng(2).normal(edge, 0.04, size=(1500, 8))
    outcomes = [fits.equivalence(draw, 0.1, alpha=0.05).outcome for draw in draws]
    assert outcomes.count("equivalent") / 1500 == pytest.approx(0.05, abs=0.02)
    assert outcomes.count("different") / 1500 == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("given", [{"margin": 0.0}, {"margin": 0.1, "alpha": 0.6}])
def test_equivalence_refuses_what_is_no_margin_or_level(given):
    with pytest.raises(DataError, match="give"):
        fits.equivalence([1.0, 2.0], **given)


def test_holm_by_hand():
    assert fits.holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx((0.04, 0.09, 0.09, 0.5))
    assert fits.holm([]) == ()
    with pytest.raises(DataError):
        fits.holm([1.2])


def test_holm_keeps_the_family_wise_error_rate():
    p_values = np.random.default_rng(3).uniform(size=(1000, 5))
    assert np.mean([min(fits.holm(row)) <= 0.1 for row in p_values.tolist()]) == pytest.approx(0.1, abs=0.03)


def test_the_seeds_named_do_decide_as_often_as_asked():
    seeds = fits.seeds_to_decide(sd=0.1, distances=0.08, alpha=0.01, power=0.8)
    draws = np.random.default_rng(4).normal(0.08, 0.1, size=(1500, seeds))
    decided = np.mean([fits.p_above(draw, 0.0) <= 0.01 for draw in draws])
    assert decided == pytest.approx(0.8, abs=0.04)


def test_two_bounds_need_more_seeds_than_one_and_none_helps_on_a_bound():
    one, two = (fits.seeds_to_decide(0.1, distances) for distances in (0.05, [0.05, 0.05]))
    assert one < two
    assert fits.seeds_to_decide(0.1, [0.05, 0.0]) is None
    assert fits.seeds_to_decide(1.0, 1e-4) is None
    assert fits.seeds_to_decide(0.0, 0.1) == fits.FEWEST_SEEDS
