import pytest

from normlab.claims import combine

S, R, U, N, C = "supported", "refuted", "inconclusive", "not-tested", "conditional"


@pytest.mark.parametrize("outcomes, regimes, parts", [
    ([], N, N),
    ([N, N], N, N),
    ([S], S, S),
    ([R], R, R),
    ([U], U, U),
    ([S, S], S, S),
    ([R, R], R, R),
    ([U, U], U, U),
    ([S, N], S, S),
    ([R, N], R, R),
    ([U, N], U, U),
    ([S, R], C, R),
    ([S, U], U, U),
    ([R, U], U, R),
    ([S, R, U], C, R),
    ([S, R, N], C, R),
    ([S, R, U, N], C, R),
])  # fmt: skip
def test_truth_table(outcomes, regimes, parts):
    for order in (outcomes, outcomes[::-1]):
        assert combine(order) == regimes
        assert combine(order, "parts") == parts
