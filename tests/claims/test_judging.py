import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from normlab import claims
from normlab.claims.building import regime, swept
from normlab.claims.claim import Statistic
from normlab.errors import DataError, UnknownNameError
from normlab.fits import choose
from normlab.table import concat, read_csv

LINEAR, SHRINKS, LARGE = "preln-variance-linear-in-depth", "preln-grad-shrinks-with-depth", "postln-output-grad-large"


@pytest.fixture(scope="module")
def own_rows():
    """The kept rows that a claim's verdict used, two seeds of them."""
    kept = read_csv(Path(__file__).parents[2] / "docs" / "claims.csv.gz")
    kept = kept[kept["model_seed"] < kept["model_seed"].min() + 2]
    chosen = [name for name, claim in claims.CLAIMS.items() if claim.design.grids]
    verdicts = {verdict.id: verdict for verdict in claims.judge_all(kept, chosen, untested=True, own=True)}
    return lambda name: choose(kept, str(verdicts[name].rows["query"]))


@pytest.fixture(scope="module")
def demo(simulated):
    return simulated.demo()


@pytest.mark.parametrize("claim", [LINEAR, SHRINKS, LARGE])
def test_the_expected_world_gives_the_expected_verdict(demo, claim):
    verdict = claims.judge(claim, demo)
    assert verdict.verdict == verdict.expected == claims.CLAIMS[claim].expected


def verdict_of(claim, table):
    return claims.judge(claim, table).verdict


@pytest.mark.parametrize("a, b, outcome", [
    (0.0, 0.0, "supported"), (0.4, 0.4, "refuted"), (-0.6, 0.4, "refuted"), (0.0, 0.4, "conditional"),
    (0.4, 0.0, "conditional"), (0.0, 0.05, "inconclusive"),
])  # fmt: skip
def test_variance_linear_in_worlds_of_known_growth(simulated, a, b, outcome):
    noises = (0.001, 0.06 if outcome == "inconclusive" else 0.001)
    worlds = [
        simulated.sweep(attention=attention, increment_exponent=exponent, depths=(64,), noise=noise)
        for attention, exponent, noise in zip(("none", "softmax"), (a, b), noises, strict=True)
    ]
    assert verdict_of(LINEAR, concat(worlds)) == outcome


@pytest.mark.parametrize("on, off, outcome", [
    (-0.5, -0.5, "supported"), (-0.5, 0.5, "conditional"), (0.0, 0.5, "refuted"), (-0.5, -0.4, "inconclusive"),
])  # fmt: skip
def test_gradient_shrinks_in_worlds_of_known_slope(simulated, on, off, outcome):
    worlds = [
        simulated.sweep(final_norm=state, gradient_on_stream=slope, gradient_sd=0.05)
        for state, slope in (("on", on), ("off", off))
    ]
    assert verdict_of(SHRINKS, concat(worlds)) == outcome


@pytest.mark.parametrize("world, outcome", [
    ({}, "supported"),
    ({"gradient_on_depth": 0.4}, "supported"),
    ({"gradient_on_depth": -0.4}, "refuted"),
    ({"gradient_on_depth": -0.1}, "inconclusive"),
    ({"gradient_scale": 0.05}, "refuted"),
    ({"gradient_sd": 1.5}, "inconclusive"),
])  # fmt: skip
def test_output_gradient_large_in_worlds_of_known_slope(simulated, world, outcome):
    worlds = [simulated.sweep(placement="post", **world), simulated.sweep(placement="pre")]
    assert verdict_of(LARGE, concat(worlds)) == outcome


def test_a_ratio_that_falls_refutes(simulated):
    worlds = [simulated.sweep(placement="post"), simulated.sweep(gradient_on_stream=0.3, gradient_scale=0.01)]
    found = {regime.name: regime.verdict for regime in claims.judge(LARGE, concat(worlds)).regimes}
    assert found == {
        "against depth": "supported",
        "Post-LN over Pre-LN, smallest ratio": "supported",
        "Post-LN over Pre-LN, against depth": "refuted",
    }


def test_a_regime_that_the_table_lacks_is_named_and_the_rest_is_judged(simulated):
    verdict = claims.judge(SHRINKS, simulated.sweep())
    assert (verdict.verdict, verdict.expected) == ("supported", "supported")
    assert [regime.verdict for regime in verdict.regimes] == ["supported", "not-tested"]
    assert verdict.coverage_gaps == (
        "final norm off: the table has no Pre-LN models (LayerNorm or RMSNorm, no encoder-decoder) with the final norm "
        "off",
    )


def test_a_table_that_says_nothing_gives_not_tested(simulated):
    verdict = claims.judge(LARGE, simulated.sweep())
    assert (verdict.verdict, verdict.rows["count"], verdict.rows["query"]) == ("not-tested", 0, "")
    assert "no Post-LN models" in verdict.reason


@pytest.mark.parametrize("claim, world, gap", [
    (SHRINKS, {"depths": (8, 16)}, "3 depths are needed and 2"),
    (LINEAR, {"depths": (2, 4)}, "8 blocks are needed"),
    (LINEAR, {"tokens": 32}, "at least 64 tokens"),
    (SHRINKS, {"norm": "identity"}, "no Pre-LN models"),
])  # fmt: skip
def test_gaps_have_reasons(simulated, claim, world, gap):
    verdict = claims.judge(claim, simulated.sweep(**world))
    assert verdict.verdict == "not-tested"
    assert any(gap in text for text in verdict.coverage_gaps)
    assert gap in verdict.reason


def test_a_stream_that_does_not_grow_has_no_slope_on_it(simulated):
    table = simulated.sweep()
    still = table["quantity"] == "mean_square"
    table.loc[still, "value"] = 1 + 0.01 * np.sin(np.arange(still.sum()))
    assert "less than a factor of 2" in claims.judge(SHRINKS, table).reason


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_are_inconclusive_and_say_how_many(simulated, seeds):
    verdict = claims.judge(SHRINKS, simulated.sweep(seeds=range(seeds)))
    assert (verdict.verdict, verdict.seeds_to_decide) == ("inconclusive", 8)
    assert f"{seeds} of the 3 seeds" in verdict.reason
    json.dumps(verdict.to_json(), allow_nan=False)


def test_inconclusive_says_how_many_seeds_would_decide(simulated):
    few = claims.judge(SHRINKS, simulated.sweep(seeds=range(4), gradient_sd=0.3))
    assert few.verdict == "inconclusive"
    assert few.seeds_to_decide > 4
    assert f"about {few.seeds_to_decide} seeds" in few.reason
    more = simulated.sweep(seeds=range(2 * few.seeds_to_decide), gradient_sd=0.3, draw=1)
    assert verdict_of(SHRINKS, more) == "supported"


def test_different_models_are_judged_apart(simulated):
    worlds = [simulated.sweep(norm="layernorm"), simulated.sweep(norm="rmsnorm", gradient_on_stream=0.3)]
    verdict = claims.judge(SHRINKS, concat(worlds))
    found = {regime.spec.get("norm"): (regime.name, regime.verdict) for regime in verdict.regimes if regime.spec}
    assert found == {
        "layernorm": ("final norm on (norm=layernorm)", "supported"),
        "rmsnorm": ("final norm on (norm=rmsnorm)", "refuted"),
    }
    assert verdict.verdict == "conditional"


def test_data_are_told_apart(simulated):
    worlds = [simulated.sweep(data="text"), simulated.sweep(data="random", gradient_on_stream=0.3)]
    verdict = claims.judge(SHRINKS, concat(worlds))
    assert [regime.name for regime in verdict.regimes if regime.spec] == [
        "final norm on (random, 4 × 64 tokens)",
        "final norm on (text, 4 × 64 tokens)",
    ]


def test_the_widest_models_decide_and_every_width_is_shown(simulated):
    worlds = [simulated.sweep(width=64, gradient_on_stream=-0.3), simulated.sweep(width=256)]
    regime = claims.judge(SHRINKS, concat(worlds)).regimes[0]
    assert (regime.verdict, regime.widths) == ("supported", (256,))
    assert [size.width for size in regime.finite_size.sizes] == [256, 64]
    assert regime.finite_size.sizes[1].effect == pytest.approx(-0.3, abs=0.1)
    assert (regime.finite_size.deviation, regime.finite_size.agrees) == ("shrinks", False)


def test_blocks_of_other_proportions_are_told_apart(simulated):
    worlds = [simulated.sweep(), simulated.sweep(mlp_width=128, gradient_on_stream=0.3)]
    names = [regime.name for regime in claims.judge(SHRINKS, concat(worlds)).regimes]
    assert names[:2] == ["final norm on (mlp_width/width=1.0)", "final norm on (mlp_width/width=4.0)"]


def test_non_finite_cells_are_left_out_and_named(simulated):
    table = simulated.sweep()
    lost = (table["depth"] == 64) & (table["model_seed"] < 6)
    table.loc[lost, "value"] = np.nan
    table["status"] = table["status"].cat.add_categories("nonfinite")
    table.loc[lost, "status"] = "nonfinite"
    verdict = claims.judge(SHRINKS, table)
    assert verdict.regimes[0].depths == (4, 8, 16, 32)
    assert verdict.regimes[0].n_seeds == 8
    assert any("nonfinite" in gap for gap in verdict.coverage_gaps)
    assert any("depth 64 left out" in gap for gap in verdict.coverage_gaps)


def test_only_measurements_at_the_start_count(simulated):
    start, later = simulated.sweep(), simulated.sweep(gradient_on_stream=0.5)
    later["step"] = later["step"] + 100
    theory = simulated.sweep(gradient_on_stream=0.5)
    theory["source"] = theory["source"].cat.rename_categories({"measured": "theory"})
    assert claims.judge(SHRINKS, concat([start, later, theory])).rows == claims.judge(SHRINKS, start).rows


def test_the_rows_behind_a_verdict_can_be_found_again(demo):
    verdict = claims.judge(SHRINKS, demo)
    rows = demo.query(verdict.rows["query"])
    assert len(rows) == verdict.rows["count"]
    assert claims.rows_hash(rows) == verdict.rows["hash"]
    assert claims.rows_hash(rows.iloc[::-1]) == verdict.rows["hash"]
    changed = rows.copy()
    changed.iloc[0, changed.columns.get_loc("value")] += 1e-9
    assert claims.rows_hash(changed) != verdict.rows["hash"]


def test_the_verdict_is_that_of_a_hand_computation(simulated):
    table = simulated.sweep()
    last = table[(table["layer"] == table["depth"]) & (table["sublayer"] == "mlp")]
    log = {
        quantity: np.log(rows.pivot(index="model_seed", columns="depth", values="value").to_numpy(dtype=float))
        for quantity, rows in last[last["quantity"].isin(["grad_norm", "mean_square"])].groupby(
            "quantity", observed=True
        )
    }
    slopes = [np.polyfit(q, g, 1)[0] for q, g in zip(log["mean_square"], log["grad_norm"], strict=True)]
    regime = claims.judge(SHRINKS, table).regimes[0]
    assert regime.effect == pytest.approx(np.mean(slopes))
    half = 2.997949 * np.std(slopes, ddof=1) / np.sqrt(8)  # Student's t, 7 degrees of freedom, .99
    assert (regime.low, regime.high) == pytest.approx((np.mean(slopes) - half, np.mean(slopes) + half), rel=1e-5)


def test_judging_together_corrects_within_a_family(demo):
    verdicts = {verdict.id: verdict for verdict in claims.judge_all(demo)}
    assert {LINEAR, SHRINKS, LARGE} <= set(verdicts) < set(claims.CLAIMS)
    assert all(0 < verdicts[name].p_holm <= 0.01 for name in (LINEAR, SHRINKS, LARGE))
    assert claims.judge(SHRINKS, demo).p_holm is None
    tested = [regime for verdict in verdicts.values() for regime in verdict.regimes if regime.verdict != "not-tested"]
    by_chance = sum(regime.level < 1 for regime in tested)
    assert 0 < by_chance < len(tested)  # where every draw must obey, nothing is left to chance
    assert claims.false_verdicts_expected(list(verdicts.values())) == pytest.approx(0.01 * by_chance)


def test_judging_together_leaves_out_what_the_table_cannot_speak_to(simulated):
    assert LARGE not in [verdict.id for verdict in claims.judge_all(simulated.sweep())]


def test_a_table_that_is_no_sweep_is_refused(demo):
    with pytest.raises(DataError, match="the table of a sweep.*'placement'"):
        claims.judge(SHRINKS, demo.drop(columns="placement"))
    with pytest.raises(UnknownNameError, match=f"did you mean '{SHRINKS}'"):
        claims.judge("preln-grad-shrinks", demo)


def test_claims_and_fits_need_no_torch():
    code = "import sys, normlab.claims, normlab.fits; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def planted():
    """Claims of "constant" about Post-LN, with Pre-LN for contrast; removed again."""
    rule, what = claims.AtMost(1e9), Statistic("largest", "value", "quantity == 'mean_square'", largest)
    regimes = (
        regime("Post-LN", what, rule, query="placement == 'post'", models="Post-LN models"),
        regime("Pre-LN", what, claims.AtMost(0), "refuted", query="placement == 'pre'", models="Pre-LN models",
               contrast=True),
    )  # fmt: skip
    claim = swept("planted", "planted", regimes, (), statement="s", source="s", refuted_by="r", right="h")
    yield claim.id
    claims.CLAIMS._entries.pop("planted")


def largest(rows):
    return claims.Sample(rows.groupby("model_seed")["value"].max().to_numpy(dtype=float), (8,))


def test_a_contrast_is_shown_and_decides_nothing(planted, simulated):
    both = concat([simulated.sweep(placement="post"), simulated.sweep()])
    verdict = claims.judge(planted, both)
    assert (verdict.verdict, verdict.expected, claims.CLAIMS[planted].expected) == ("supported",) * 3
    assert [(found.name, found.verdict) for found in verdict.regimes] == [
        ("Post-LN", "supported"),
        ("Pre-LN, for contrast", "refuted"),
    ]


def test_a_contrast_alone_tests_nothing(planted, simulated):
    verdict = claims.judge(planted, simulated.sweep())
    assert (verdict.verdict, verdict.rows["count"]) == ("not-tested", 0)
    assert [found.verdict for found in verdict.regimes] == ["not-tested", "refuted"]
    assert "no Post-LN models" in verdict.reason


@pytest.mark.parametrize("claim", ["late-layers-matter-less", "rank-collapse"])
def test_a_gap_names_every_restriction(simulated, claim):
    table = simulated.sweep(placement="post").assign(activation="gelu", init="xavier")
    gaps = [gap for gap in claims.judge(claim, table).coverage_gaps if "Post-LN" in gap]
    assert gaps and all("ReLU" in gap for gap in gaps)


@pytest.mark.parametrize("name", [name for name, claim in claims.CLAIMS.items() if claim.design.grids])
def test_a_table_that_lacks_a_quantity_or_a_column_gives_gaps(own_rows, name):
    rows = own_rows(name)
    quantities = rows["quantity"].unique() if rows["quantity"].nunique() > 1 else ()
    for quantity in quantities:
        assert claims.judge(name, rows[rows["quantity"] != quantity]).coverage_gaps
    queries = " ".join(regime.query for regime in claims.CLAIMS[name].regimes)
    for column in ("init", "activation", "placement_options"):
        if column in queries:
            assert f"no column '{column}'" in " ".join(claims.judge(name, rows.drop(columns=column)).coverage_gaps)
