"""Medians of token radii: exact while they are few, from a logarithmic histogram when they are many."""

import numpy as np
import pytest

from normlab.recording.radii import KEPT, Radii, medians, radii_of


def draw(count: int, seed: int = 0) -> np.ndarray:
    return np.exp(3 * np.random.default_rng(seed).standard_normal(count))


def of(values: np.ndarray) -> Radii:
    return radii_of(values[None, :])[0]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 1000])
def test_few_are_exact(count: int) -> None:
    values = draw(count)
    assert of(values).median() == pytest.approx(np.median(values), rel=1e-7) and of(values).exact


def test_left_out_tokens_are_gaps() -> None:
    values = np.array([1.0, np.nan, 3.0, 10.0])
    assert of(values).median() == 3.0
    assert np.isnan(of(np.full(3, np.nan)).median())


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_many_are_within_half_a_percent(scale: float) -> None:
    values = scale * draw(KEPT + 1)
    radii = of(values)
    assert not radii.exact and radii.median() == pytest.approx(np.median(values), rel=5e-3)


def test_joining_crosses_over_to_the_histogram() -> None:
    parts = [draw(30_000, seed) for seed in range(3)]
    joined = of(parts[0]).joined(of(parts[1])).joined(of(parts[2]))
    together = of(np.concatenate(parts))
    assert not joined.exact and joined.median() == together.median()
    assert joined.counts is not None and joined.counts.sum() == 90_000


def test_many_zeros_have_the_median_zero() -> None:
    values = np.concatenate([np.zeros(KEPT), draw(100)])
    assert of(values).median() == 0.0


def test_medians_of_many_are_those_of_each() -> None:
    many = [of(draw(count, seed)) for seed, count in enumerate([3, 8, 8, 3, KEPT + 5])] + [of(np.full(2, np.nan))]
    assert medians(many) == pytest.approx([one.median() for one in many], nan_ok=True)


def test_subnormal_radii_keep_their_digits() -> None:
    assert of(np.full(3, 1.234567e-41)).median() == pytest.approx(1.234567e-41, rel=1e-7)
