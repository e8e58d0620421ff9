from normlab import claims
from normlab.cli.verdicts import not_judged, verdict_table


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


def test_a_number_says_what_it_is_and_has_a_minus_sign(simulated):
    verdict = claims.judge("preln-grad-shrinks-with-depth", simulated.sweep())
    (regime,) = [regime for regime in verdict.regimes if regime.verdict != "not-tested"]
    said, brief = (
        "\n".join(str(cell) for column in verdict_table([verdict], named=named).columns for cell in column.cells)
        for named in (True, False)
    )
    assert regime.effect < 0 and f"log-log slope −{abs(regime.effect):.3g} [−" in said.replace("\\[", "[")
    assert regime.estimator in said.replace("\\[", "[") and regime.estimator not in brief
