import numpy as np
import pytest
from scipy import optimize

from normlab import fits
from normlab.errors import DataError

LAYERS = np.arange(1, 65.0)


@pytest.mark.parametrize("name", fits.LAWS)
def test_the_law_that_made_a_curve_is_chosen(name):
    law = fits.LAWS[name]
    line = 1.0 + 0.05 * law.g(LAYERS)
    y = np.exp(line) if law.exponential else line
    noisy = y * np.exp(np.random.default_rng(0).normal(scale=1e-3, size=(8, len(LAYERS))))
    chosen = fits.growth_law((LAYERS, noisy))
    assert (chosen.law, chosen.votes[name], chosen.decided) == (name, 8, True)
    np.testing.assert_allclose(chosen.predict(LAYERS), y, rtol=0.01)


@pytest.mark.parametrize("exponent, law", [(-1.0, "logarithmic"), (-0.5, "sqrt"), (0.0, "linear"), (1.0, "quadratic")])
def test_cumulated_noise_does_not_change_the_vote(simulated, exponent, law):
    y = simulated.stream(np.random.default_rng(1), 24, 64, exponent=exponent)
    chosen = fits.growth_law((np.arange(65.0), y))
    assert (chosen.law, chosen.decided) == (law, True)
    assert chosen.left_out == ("24 points have no logarithm", "x 0 left out: fewer than half of the seeds have it")


def test_a_few_seeds_do_not_decide():
    chosen = fits.growth_law((LAYERS, [1 + LAYERS] * 4))
    assert (chosen.law, chosen.p_value, chosen.decided) == ("linear", 1 / 16, False)
    assert fits.growth_law((LAYERS, [1 + LAYERS] * 5)).decided
    assert "leading, not decided" in chosen._repr_html_()


def test_a_law_that_no_curve_follows_is_poor():
    step = np.where(LAYERS < 12, 4.0, 4000.0)
    chosen = fits.growth_law((LAYERS, [step] * 5))
    residual = np.log(step / chosen.predict(LAYERS))
    assert chosen.error == pytest.approx(np.exp(np.sqrt(np.mean(residual**2))) - 1) and chosen.poor
    line = 1 + LAYERS * (1 + 0.1 * (-1.0) ** LAYERS)
    assert 0.05 < fits.growth_law((LAYERS, line)).error < 0.15 and not fits.growth_law((LAYERS, line)).poor


def test_growth_of_a_tables_stream(simulated):
    table = simulated.sweep(depths=(32,))
    where = {"site": "stream", "sublayer": "mlp"}
    assert fits.growth_law(table, "mean_square", where=where).law == "linear"


def test_too_few_points_are_an_error():
    with pytest.raises(DataError, match="with 4"):
        fits.growth_law(([1, 2, 3], [1.0, 2.0, 3.0]))


@pytest.mark.parametrize("name", fits.LAWS)
def test_a_and_b_without_each_point_are_those_of_scipy_on_what_is_left(name):
    law = fits.LAWS[name]
    x = np.arange(1.0, 8.0)
    noise = np.random.default_rng(3).normal(0.0, 0.05, len(x))
    line = 0.7 + 0.3 * law.g(x)
    y = (np.exp(line) if law.exponential else line) * (1 + noise)
    a, b = fits.left_out(law, x, y)
    for place in range(len(x)):
        kept = [one for one in range(len(x)) if one != place]
        (own_a, own_b), _ = optimize.curve_fit(
            lambda at, a, b: a + b * law.g(at) if law.exponential else np.log(a + b * law.g(at)),
            x[kept], np.log(y[kept]), p0=(0.7, 0.3), xtol=1e-12, ftol=1e-12,
        )  # fmt: skip
        assert a[place] == pytest.approx(own_a, rel=1e-6) and b[place] == pytest.approx(own_b, rel=1e-6)


def _misfit(law, y):
    """The least mean square of ln y − ln f over all laws of this form that are positive, from many starts."""
    g = law.g(LAYERS)
    line = (lambda a, b: a + b * g) if law.exponential else (lambda low, high: _log_line(g, low, high))
    starts = [(a, b) for a in (-3, 0, 3, 6) for b in ((-0.1, 0.0, 0.1) if law.exponential else (-3, 0, 3, 6))]
    found = [
        optimize.minimize(lambda p: np.mean((np.log(y) - line(*p)) ** 2), start, method="Nelder-Mead",
                          options={"maxiter": 4000, "xatol": 1e-10, "fatol": 1e-14}).fun
        for start in starts
    ]  # fmt: skip
    return min(found)


def _log_line(g, low, high):
    """The logarithm of a line, from those of its ends: no line that is negative somewhere can be written so."""
    share = (g - g[0]) / (g[-1] - g[0])
    return np.log(np.exp(low) * (1 - share) + np.exp(high) * share)


@pytest.mark.parametrize("jump", [5.0, 400.0])
def test_all_laws_are_compared_by_one_criterion_even_where_none_fits(jump):
    """A stream with a step, as a massive token makes one: every law is at its own best, and the AIC is of that."""
    y = np.where((LAYERS > 11) & (LAYERS < 60), jump, 1.0) * (1 + 0.05 * LAYERS)
    least = {name: len(LAYERS) * np.log(_misfit(law, y)) for name, law in fits.LAWS.items()}
    chosen = fits.growth_law((LAYERS, y))
    assert chosen.law == min(least, key=least.__getitem__)
    assert chosen.delta_aic == pytest.approx({name: own - min(least.values()) for name, own in least.items()}, abs=1e-4)
    assert (chosen.predict(LAYERS) > 0).all()


def test_a_line_falls_almost_to_zero_but_not_below():
    y = np.array([64.0, 48.0, 30.0, 16.0, 0.5, 0.5])
    a, b = fits.left_out(fits.LAWS["linear"], np.arange(1.0, 7.0), y)
    assert (a[:-1] + 6 * b[:-1] > 0).all() and (b < 0).all()
