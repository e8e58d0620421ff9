import numpy as np
import pytest

from normlab.benchmarks import ratio_of_medians
from normlab.errors import DataError


def times(median: float, rounds: int, rng: np.random.Generator) -> np.ndarray:
    return median * np.exp(rng.normal(scale=0.1, size=rounds))


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    found = [ratio_of_medians(times(3.0, 40, rng), times(2.0, 40, rng)) for _ in range(200)]
    assert 0.9 <= np.mean([ratio.low <= 1.5 <= ratio.high for ratio in found]) <= 0.995


def test_what_slows_both_in_a_round_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    slow = np.exp(rng.normal(scale=0.5, size=60))
    paired = ratio_of_medians(3 * slow, 2 * slow)
    apart = ratio_of_medians(3 * slow, 2 * rng.permutation(slow))
    assert paired.low == pytest.approx(1.5) == paired.high
    assert apart.high - apart.low > 0.3


def test_equal_times_and_the_number_of_rounds() -> None:
    ratio = ratio_of_medians(np.full(25, 3.0), np.full(25, 2.0))
    assert (ratio.value, ratio.low, ratio.high, ratio.rounds) == (1.5, 1.5, 1.5, 25)
    with pytest.raises(DataError, match="24 and 24 rounds"):
        ratio_of_medians(np.ones(24), np.ones(24))
