import pytest

from normlab import claims
from normlab.plots import PLOTS
from normlab.spec import ModelSpec

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
        assert claim.not_tested in ("training", "gpu", "weights", "source-only")
        assert claim.expected == "not-tested" and claim.regimes == ()
    else:
        assert claim.design.grids or claim.design.evidence
        assert claim.expected != "not-tested"
        assert len({regime.name for regime in claim.regimes}) == len(claim.regimes)


@pytest.mark.parametrize("name", claims.CLAIMS)
def test_a_claims_own_sweep_has_models_for_all_its_regimes(simulated, name):
    claim = claims.CLAIMS[name]
    specs = claims.plan([name], quick=True).specs
    cells = [{"step": 0, "tokens": 64, "stack": "decoder", **spec.columns()} for spec in specs]
    table = simulated.normalise(simulated.pd.DataFrame(cells))
    for regime in claim.regimes:
        if not regime.statistic.computed:
            assert len(table.query(regime.query)), regime.name


def test_training_is_not_judged_and_says_so(simulated):
    (verdict,) = claims.judge_all(simulated.sweep(), ["batchnorm-14x"], untested=True)
    assert (verdict.verdict, verdict.expected, verdict.reason) == ("not-tested", "not-tested", "training")
    assert claims.check("rms-faster-on-gpu").reason == "gpu"


def test_the_union_of_what_claims_need_names_each_model_once():
    both = claims.plan(["preln-grad-shrinks-with-depth", "postln-output-grad-large"], quick=True)
    one = claims.plan(["preln-grad-shrinks-with-depth"], quick=True)
    assert len(both.specs) == len(set(both.specs)) == 15
    assert set(one.specs) <= set(both.specs)
    assert {spec.width for spec in one.specs} == {64}
    full = claims.plan(["preln-grad-shrinks-with-depth"])
    assert {spec.width for spec in full.specs} == {64, 128} and full.seeds == tuple(range(16))
    assert all(isinstance(spec, ModelSpec) for spec in full.specs)
