import numpy as np
import pytest

from normlab import fits
from normlab.errors import DataError

DEPTHS = np.array([4.0, 8, 16, 32, 64])


def power_laws(exponent, *, seeds=8, sd=0.1, draw=0):
    rng = np.random.default_rng(draw)
    return 3.0 * DEPTHS**exponent * np.exp(rng.normal(scale=sd, size=(seeds, len(DEPTHS))))


def test_exponent_is_the_mean_of_the_seeds_log_log_slopes():
    y = power_laws(-0.5)
    slopes = [np.polyfit(np.log(DEPTHS), np.log(row), 1)[0] for row in y]
    fit = fits.exponent((DEPTHS, y))
    assert fit.per_seed == pytest.approx(slopes)
    assert fit.exponent == pytest.approx(np.mean(slopes))
    assert (fit.low, fit.high) == pytest.approx((fits.seed_interval(slopes).low, fits.seed_interval(slopes).high))


def test_interval_of_the_exponent_covers_the_truth():
    found = [fits.exponent((DEPTHS, power_laws(-0.5, draw=draw))) for draw in range(400)]
    assert np.mean([fit.low < -0.5 < fit.high for fit in found]) == pytest.approx(0.95, abs=0.04)


def test_an_exact_power_law_is_drawn_back():
    fit = fits.exponent((DEPTHS, [2 * DEPTHS**0.5, 2 * DEPTHS**0.5]))
    np.testing.assert_allclose(fit.predict(DEPTHS), 2 * DEPTHS**0.5)
    assert "p = 0.500" in fit._repr_html_()


def test_exponent_of_a_tables_last_gradient(simulated):
    table = simulated.sweep(gradient_on_stream=0.0, gradient_on_depth=-0.7, gradient_sd=0.0, noise=0.0)
    fit = fits.exponent(table, "grad_norm", where="role == 'down' and layer == depth")
    assert fit.exponent == pytest.approx(-0.7)
    assert (fit.x_name, fit.y_name, fit.x) == ("depth", "grad_norm", tuple(DEPTHS))


def test_a_zero_has_no_logarithm_and_is_reported():
    y = power_laws(1.0, sd=0.0)
    y[3, 2] = 0.0
    fit = fits.exponent((DEPTHS, y))
    assert fit.exponent == pytest.approx(1.0)
    assert fit.n_seeds == 7
    assert fit.left_out == ("1 point has no logarithm", "seed 3 left out: no value at some x")


def test_nothing_left_to_fit_is_an_error():
    with pytest.raises(DataError, match="no logarithm"):
        fits.exponent((DEPTHS, np.zeros(5)))


def walks(simulated, exponent, *, noise=0.003, seeds=400, depth=64):
    rng = np.random.default_rng(0)
    return np.arange(depth + 1.0), simulated.stream(rng, seeds, depth, exponent=exponent, noise=noise)


@pytest.mark.parametrize("truth", [-1.0, -0.5, 0.0, 0.15, 0.3, 1.0])
def test_increments_exponent_is_exact_without_noise(truth):
    layers = np.arange(65.0)
    y = 1 + np.concatenate([[0.0], np.cumsum(0.3 * layers[1:] ** truth)])
    fit = fits.increments_exponent((layers, y))
    assert fit.exponent == pytest.approx(truth, abs=1e-9)
    assert fit.prefactor == pytest.approx(0.3)


@pytest.mark.parametrize("truth", [-0.5, 0.0, 0.15, 0.3])
def test_increments_exponent_has_no_bias_at_the_noise_of_networks(simulated, truth):
    fit = fits.increments_exponent(walks(simulated, truth))
    assert fit.exponent == pytest.approx(truth, abs=0.01)
    assert fit.sd < 0.15


def test_increments_exponent_stays_close_at_three_times_that_noise(simulated):
    assert fits.increments_exponent(walks(simulated, 0.0, noise=0.03)).exponent == pytest.approx(0.0, abs=0.03)


def test_intervals_of_the_increments_exponent_cover_the_truth(simulated):
    per_seed = fits.increments_exponent(walks(simulated, 0.15, seeds=1000 * 8)).per_seed
    found = [fits.seed_interval(group) for group in np.split(np.array(per_seed), 1000)]
    assert np.mean([interval.low < 0.15 < interval.high for interval in found]) == pytest.approx(0.95, abs=0.03)


def test_a_regression_of_log_increments_would_be_biased(simulated):
    layers, y = walks(simulated, 0.0, noise=0.03)
    slopes = [np.polyfit(np.log(layers[1:][steps > 0]), np.log(steps[steps > 0]), 1)[0] for steps in np.diff(y, axis=1)]
    assert abs(np.mean(slopes)) > 0.1


def test_a_steady_fall_is_a_power_law_too():
    assert fits.increments_exponent((np.arange(9.0), 10 - np.arange(9.0))).exponent == pytest.approx(0.0, abs=1e-9)


def test_a_stream_that_rises_and_falls_has_no_increments_exponent():
    layers = np.arange(9.0)
    fit = fits.increments_exponent((layers, [1 + layers, 1 + layers, 5 + 4 * np.sin(layers * np.pi / 8)]))
    assert fit.seeds == (0, 1)
    assert "no exponent in seed 2" in fit.left_out[0]


@pytest.mark.parametrize("power", [-0.5, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("offset", [3.0, 40.0])
def test_offset_exponent_finds_the_power_whatever_the_offset(power, offset):
    y = offset + np.sign(power) * DEPTHS**power
    fit = fits.offset_exponent((DEPTHS, [y, y]))
    assert fit.exponent == pytest.approx(power, abs=1e-8)
    assert fit.offset == pytest.approx(offset, rel=1e-6)
    np.testing.assert_allclose(fit.predict(DEPTHS), y, rtol=1e-6)


def test_offset_exponent_finds_a_logarithm_at_zero():
    assert fits.offset_exponent((DEPTHS, 2 + np.log(DEPTHS))).exponent == pytest.approx(0.0, abs=1e-8)


def test_offset_exponent_of_noisy_streams(simulated):
    layers, y = walks(simulated, 0.3)
    fit = fits.offset_exponent((layers[1:], y[:, 1:]))
    # Increments ℓ^.3 sum to about ℓ^1.3/1.3.
    assert fit.exponent == pytest.approx(1.3, abs=0.03)


def test_four_points_are_needed():
    with pytest.raises(DataError, match="4"):
        fits.increments_exponent(([0, 1, 2], [1.0, 2.0, 3.0]))
