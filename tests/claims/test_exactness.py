import numpy as np
import pytest

from normlab.claims import AtLeast, AtMost


@pytest.mark.parametrize("rule, values, outcome", [
    (AtMost(1e-10), [0.0, 1e-12], "supported"), (AtMost(1e-10), [0.0, 1e-9], "refuted"),
    (AtMost(0), [0.0], "supported"),
    (AtLeast(0.1), [0.2, 0.1], "supported"), (AtLeast(0.1), [0.2, 0.09], "refuted"),
])  # fmt: skip
def test_one_draw_refutes(rule, values, outcome):
    decision = rule.decide(np.array(values), 0.01)
    assert decision.outcome == outcome
    assert (decision.interval.low, decision.interval.high) == (min(values), max(values))
    assert decision.p == 0 and decision.seeds is None
    assert f"{rule.bound:g}" in rule.text and rule.margin == rule.bound
