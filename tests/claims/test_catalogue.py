import csv
from pathlib import Path

import pytest

from normlab import claims
from normlab.plots import PLOTS
from normlab.spec import ModelSpec
from normlab.table import concat

EXACT = """
ln-worked-example rms-worked-example rms2-is-variance-plus-mean2 residual-variance-identity ln-shift-invariant
rms-not-shift-invariant rms-keeps-signs upstream-scale-gradient ln-projects-out-ones norm-jacobian-spectrum
ln-is-projected-rms ln-discards-mean-forever affine-cannot-undo prenorm-identity-path postnorm-jacobian
pre-residual-is-unnormalised postln-definition gpt2-is-post-ln architecture-census padding-contaminates-batchnorm
batchnorm-leaks-future batchnorm-single-token batchnorm-train-eval-gap batchnorm-batch-32 welford-no-cancellation
fp16-square-overflow fp32-accumulation rms-fewer-parameters llama3-8b-65-norms qknorm-logit-bound
zero-init-branches-are-identity scale-invariant-update deepnorm-reduces-to-post
""".split()
FORWARD = """
preln-variance-linear-in-depth sqrt-depth-growth depth-12-to-80-grows-2.6x nonzero-mean-updates-grow-faster
update-uncorrelated-with-stream preln-input-scale-constant postln-stream-constant final-norm-restores-scale
final-norm-is-default-not-theorem late-layers-matter-less no-norm-breaks-beyond-12 periln-bounds-growth
peri-is-periodic lns-log-growth deepnorm-near-identity scaled-init-bounded branch-scale-bounded
qk-norm-grows-with-depth softmax-saturation-kills-gradient ln-rms-outputs-alike rank-collapse
""".split()
BACKWARD = """
preln-grad-shrinks-with-depth postln-output-grad-large preln-grad-flat-within-model postln-grad-vanishes
xiong-decay-factor grad-width-exponent gradient-gain-rule activation-exponents peri-grad-invariance mixln-flatter
residual-dual-path b2t-less-decay qk-gradient-dies-with-rank dyt-stretched-exponential lyapunov-half-zeta
""".split()
ONE_STEP = """
deepnorm-update-depth-free postln-update-grows subln-update-flat tfixup-update-flat branch-alpha-lr-rule
perturbation-amplification
""".split()
TRAINING = """
postln-warmup-sensitive deepnorm-trains-deep tfixup-no-norm-no-warmup trained-growth-law
qknorm-bounds-logits-in-training dyt-derf-match-layernorm rms-matches-layernorm postln-wins-when-shallow
preln-unstable-beyond-60 batchnorm-noise-still-trains norm-smooths-landscape batchnorm-14x clip-1.0-saves
bf16-survives gain-weight-decay adam-second-moment-mismatch completep-transfer
""".split()
COST = "rms-2x-on-cpu rms-memory rms-step-time rms-faster-on-gpu fused-add-norm-saves-a-read".split()


@pytest.mark.parametrize("ids", [EXACT, FORWARD, BACKWARD, ONE_STEP, TRAINING, COST])
def test_every_statement_that_was_collected_is_in_the_catalogue(ids):
    assert [name for name in ids if name not in claims.CLAIMS] == []


def test_the_catalogue_lists_every_claim_without_holes():
    table = claims.catalog()
    assert table["id"].tolist() == list(claims.CLAIMS)
    assert not table.isna().any().any()
    assert table["id"].is_unique and table["statement"].is_unique
    assert set(claims.catalog("training")["id"]) == set(TRAINING)


@pytest.mark.parametrize("claim", claims.CLAIMS.items(), ids=list(claims.CLAIMS))
def test_a_claim_says_what_decides_it_or_why_nothing_does(claim):
    _, claim = claim
    assert claim.refuted_by and claim.right_statement and claim.source
    assert claim.plot == "" or claim.plot in PLOTS
    if claim.not_tested:
        assert claim.not_tested in ("training", "weights", "source-only")
        assert claim.expected == "not-tested" and claim.regimes == ()
    else:
        assert claim.design.grids or claim.design.evidence
        assert claim.expected != "not-tested"
        assert claim.needs in ("", "gpu")
        assert {regime.not_tested for regime in claim.regimes} <= {"", "weights"}
        assert len({regime.name for regime in claim.regimes}) == len(claim.regimes)


@pytest.mark.parametrize("name", claims.CLAIMS)
def test_a_claims_own_sweep_has_models_for_all_its_regimes(simulated, name):
    claim = claims.CLAIMS[name]
    specs = claims.plan([name], quick=True).specs
    cells = [{"step": 0, "tokens": 64, "stack": "decoder", **spec.columns()} for spec in specs]
    table = simulated.normalise(simulated.pd.DataFrame(cells))
    for regime in claim.regimes:
        if not regime.statistic.computed and not regime.not_tested:
            assert len(table.query(regime.query)), regime.name


def test_training_is_not_judged_and_says_so(simulated):
    (verdict,) = claims.judge_all(simulated.sweep(), ["batchnorm-14x"], untested=True)
    assert (verdict.verdict, verdict.expected, verdict.reason) == ("not-tested", "not-tested", "training")


def test_what_checkpoints_would_show_is_a_regime_of_its_own(simulated):
    for name in ("preln-input-scale-constant", "postln-stream-constant", "qk-norm-grows-with-depth"):
        verdict = claims.judge(name, simulated.sweep())
        trained = [regime for regime in verdict.regimes if "checkpoints" in regime.name]
        assert trained and {regime.verdict for regime in trained} == {"not-tested"}
        assert f"{trained[0].name}: weights" in verdict.coverage_gaps


GPU = ["rms-faster-on-gpu", "fused-add-norm-saves-a-read"]


@pytest.mark.parametrize("name", GPU)
def test_without_a_gpu_nothing_is_computed_and_the_reason_is_the_gpu(monkeypatch, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    verdict = claims.check(name)
    assert (verdict.verdict, verdict.expected, verdict.reason) == ("not-tested", "not-tested", "gpu")
    assert claims.plan([name]).evidence == ()


@pytest.mark.parametrize("name", GPU)
def test_with_a_gpu_the_same_command_measures_and_judges(monkeypatch, name):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (evidence,) = claims.plan([name]).evidence
    assert evidence.alone
    numbers = {regime.statistic.query.split("'")[3]: 1.2 for regime in claims.CLAIMS[name].regimes}
    measured = claims.Evidence(lambda seed: [claims.Number(key, value + seed / 1e6) for key, value in numbers.items()])
    table = concat([measured.rows(seed) for seed in range(8)])
    assert {regime.verdict for regime in claims.judge(name, table).regimes} == {"supported"}


def test_the_union_of_what_claims_need_names_each_model_once():
    both = claims.plan(["preln-grad-shrinks-with-depth", "postln-output-grad-large"], quick=True)
    one = claims.plan(["preln-grad-shrinks-with-depth"], quick=True)
    assert len(both.specs) == len(set(both.specs)) == 15
    assert set(one.specs) <= set(both.specs)
    assert {spec.width for spec in one.specs} == {64}
    full = claims.plan(["preln-grad-shrinks-with-depth"])
    assert {spec.width for spec in full.specs} == {64, 128} and full.seeds == tuple(range(16))
    assert all(isinstance(spec, ModelSpec) for spec in full.specs)


def test_wider_computations_are_for_full_runs():
    names = {quick: [each.name for each in claims.plan(["qk-norm-grows-with-depth"], quick=quick).evidence]
             for quick in (True, False)}  # fmt: skip
    assert names == {True: ["query_scale"], False: ["query_scale", "query_scale_wide"]}


def test_a_rule_stays_what_it_was_in_its_version():
    """The ledger keeps the hash of every version; a rule that changes needs a new version (tools/keep_claims.py)."""
    with Path(__file__).with_name("rule_hashes.csv").open(encoding="utf-8", newline="") as file:
        known = {(row["id"], int(row["version"])): row["rule_hash"] for row in csv.DictReader(file)}
    found = {(name, claim.version): claim.rule_hash for name, claim in claims.CLAIMS.items()}
    assert {key: known.get(key) for key in found} == found


def test_a_choice_that_data_had_a_part_in_is_told():
    names = """activation-exponents branch-alpha-lr-rule perturbation-amplification depth-12-to-80-grows-2.6x
    nonzero-mean-updates-grow-faster rms-2x-on-cpu postln-grad-vanishes residual-dual-path b2t-less-decay
    rank-collapse""".split()
    assert [name for name in names if not claims.CLAIMS[name].history] == []
