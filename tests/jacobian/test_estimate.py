"""Means of samples, their roots and logarithms, with intervals."""

import numpy as np
import pytest
from scipy import stats

from normlab.jacobian.estimate import half_log_of_mean, mean_of, root_of_mean

SAMPLES = np.array([1.0, 2.0, 4.0, 3.0])


def test_a_mean_has_students_interval() -> None:
    found = mean_of(SAMPLES, level=0.9)
    low, high = stats.t.interval(0.9, 3, loc=2.5, scale=stats.sem(SAMPLES))
    assert (found.value, found.low, found.high) == pytest.approx((2.5, low, high))
    assert found.probes == 4 and found.level == 0.9


def test_a_root_has_the_roots_of_its_ends() -> None:
    mean, found = mean_of(SAMPLES), root_of_mean(SAMPLES)
    assert found.value**2 == pytest.approx(mean.value) and found.high**2 == pytest.approx(mean.high)
    assert root_of_mean(np.array([0.0, 0.0])).se == 0 and root_of_mean(np.array([0.0, 9.0])).low == 0


def test_the_logarithm_of_a_mean_is_put_back_to_where_it_belongs() -> None:
    drawn = 1 + 0.3 * np.random.default_rng(0).standard_normal((20_000, 4))
    found = [half_log_of_mean(samples) for samples in drawn]
    left_alone = np.log(drawn.mean(axis=1)) / 2
    assert left_alone.mean() == pytest.approx(-(0.3**2) / 4 / 4, rel=0.1)
    assert abs(np.mean([one.value for one in found])) < 0.0015
    assert np.mean([one.low < 0 < one.high for one in found]) == pytest.approx(0.95, abs=0.02)
