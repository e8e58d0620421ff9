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
    residual = (step - chosen.predict(LAYERS)) / step
    assert chosen.error == pytest.approx(np.sqrt(np.mean(residual**2))) and chosen.poor
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
        target = np.log(y[kept]) if law.exponential else y[kept]
        spread = np.ones(len(kept)) if law.exponential else y[kept]
        (own_a, own_b), _ = optimize.curve_fit(
            lambda at, a, b: a + b * law.g(at), x[kept], target, p0=(1.0, 0.1), sigma=spread
        )
        assert a[place] == pytest.approx(own_a, rel=1e-6) and b[place] == pytest.approx(own_b, rel=1e-6)
