import numpy as np
import pytest

from normlab import fits
from normlab.claims import Above, EqualWithin, ZeroWithin

ALPHA, DRAWS = 0.01, 600
ZERO, SLOPE, FLAT = ZeroWithin(0.15), EqualWithin(-0.5, 0.1), Above(-0.1)


def decide(rule, values):
    return rule.decide(np.asarray(values), ALPHA)


@pytest.mark.parametrize("rule, mean, outcome", [
    (ZERO, 0.0, "supported"), (ZERO, 0.1, "supported"), (ZERO, 0.3, "refuted"), (ZERO, -0.3, "refuted"),
    (ZERO, 0.15, "refuted"),
    (SLOPE, -0.5, "supported"), (SLOPE, -0.45, "supported"), (SLOPE, 0.5, "refuted"), (SLOPE, -0.8, "refuted"),
    (SLOPE, -0.4, "inconclusive"),
    (FLAT, 0.0, "supported"), (FLAT, 0.4, "supported"), (FLAT, -0.5, "refuted"), (FLAT, -0.1, "inconclusive"),
])  # fmt: skip
def test_outcomes_in_both_directions(rule, mean, outcome):
    values = mean + 0.02 * np.linspace(-1, 1, 8)
    decision = decide(rule, values)
    assert decision.outcome == outcome
    assert (decision.p <= ALPHA) == (outcome != "inconclusive")


@pytest.mark.parametrize("rule", [ZERO, SLOPE, FLAT])
def test_wide_intervals_do_not_decide_and_name_a_number_of_seeds_that_does(rule):
    mean = {ZERO: 0.03, SLOPE: -0.52, FLAT: 0.0}[rule]
    pattern = np.array([-1.0, 1, -1, 1, -1, 1, -1, 1]) * 0.2
    decision = decide(rule, mean + pattern)
    assert decision.outcome == "inconclusive"
    more = np.random.default_rng(0).normal(mean, decision.interval.sd, size=(200, decision.seeds))
    decided = np.mean([decide(rule, row).outcome == "supported" for row in more])
    assert 0.7 < decided < 0.97


@pytest.mark.parametrize("rule", [ZERO, SLOPE, FLAT])
def test_fewer_than_three_seeds_never_decide(rule):
    for values in ([0.0], [0.0, 0.0]):
        decision = decide(rule, values)
        assert (decision.outcome, decision.seeds) == ("inconclusive", 8)


@pytest.mark.parametrize("rule, truth, false", [
    (ZERO, 0.0, {"refuted"}), (ZERO, 0.15, {"supported"}), (ZERO, -0.15, {"supported"}),
    (SLOPE, -0.4, {"supported", "refuted"}), (SLOPE, -0.6, {"supported", "refuted"}),
    (FLAT, -0.1, {"supported", "refuted"}),
])  # fmt: skip
@pytest.mark.parametrize("seeds", [3, 8])
def test_false_verdicts_come_at_most_at_alpha(rule, truth, false, seeds):
    draws = np.random.default_rng(1).normal(truth, 0.08, size=(DRAWS, seeds))
    outcomes = [decide(rule, draw).outcome for draw in draws]
    for wrong in false:
        # Five standard errors of a rate of one in a hundred.
        assert outcomes.count(wrong) / DRAWS <= ALPHA + 5 * np.sqrt(ALPHA / DRAWS)


def outcomes_of_streams(simulated, exponent, seeds):
    y = simulated.stream(np.random.default_rng(2), 200 * seeds, 64, exponent=exponent)
    exponents = fits.increments_exponent((np.arange(65.0), y)).per_seed
    assert len(exponents) == 200 * seeds
    return [decide(ZERO, draw).outcome for draw in np.split(np.array(exponents), 200)]


@pytest.mark.parametrize("truth, right, wrong", [
    (0.0, "supported", "refuted"), (0.3, "refuted", "supported"), (-0.5, "refuted", "supported"),
])  # fmt: skip
def test_simulated_streams_get_the_right_verdict_and_hardly_ever_the_wrong_one(simulated, truth, right, wrong):
    outcomes = outcomes_of_streams(simulated, truth, seeds=8)
    assert outcomes.count(right) >= 190
    assert outcomes.count(wrong) <= 6


def test_streams_on_the_margin_are_seldom_supported(simulated):
    assert outcomes_of_streams(simulated, 0.15, seeds=8).count("supported") <= 6
