from normlab import claims
from normlab.cli.verdicts import not_judged


def test_the_nearest_gap_is_that_of_a_claim_whose_models_are_there(simulated):
    untested = claims.judge_all(simulated.sweep(depths=(2, 4)), untested=True)
    assert {verdict.verdict for verdict in untested} == {"not-tested"}
    said = not_judged(untested, alone=True)
    assert said.startswith("no claim can be judged") and "needed" in said
    nothing = claims.judge_all(simulated.sweep(placement="another"), untested=True)
    assert "the table has no" in not_judged(nothing, alone=True)


def test_claims_that_were_not_tested_are_counted(simulated):
    said = not_judged(claims.judge_all(simulated.sweep(depths=(2, 4)), untested=True), alone=False)
    counts = [int(word) for word in said.split() if word.isdigit()]
    assert sum(counts) == len(claims.CLAIMS)
