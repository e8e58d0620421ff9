"""Models that are not what they are called: the claims that should notice do."""

import pytest
import torch

from normlab import claims
from normlab.data import Random
from normlab.inits import INITS
from normlab.models import build
from normlab.norms import NORMS
from normlab.placements import PLACEMENTS
from normlab.spec import ModelSpec
from normlab.sweeps import cells
from normlab.table import concat


@pytest.mark.parametrize("registry, name, impostor, claim, before, after", [
    (NORMS, "layernorm", "rmsnorm", "ln-shift-invariant", "supported", "refuted"),
    (NORMS, "layernorm", "rmsnorm", "ln-worked-example", "supported", "refuted"),
    (NORMS, "batchnorm", "layernorm", "padding-contaminates-batchnorm", "supported", "refuted"),
    (PLACEMENTS, "post", "pre", "pre-residual-is-unnormalised", "supported", "refuted"),
    (PLACEMENTS, "post", "pre", "ln-discards-mean-forever", "conditional", "refuted"),
    (PLACEMENTS, "rezero", "pre", "zero-init-branches-are-identity", "supported", "refuted"),
    (PLACEMENTS, "peri", "pre", "scale-invariant-update", "supported", "conditional"),
    (INITS, "deepnorm", "xavier", "deepnorm-near-identity", "supported", "refuted"),
])  # fmt: skip
def test_an_impostor_in_a_registry_is_noticed(monkeypatch, registry, name, impostor, claim, before, after):
    seeds = range(3) if claim == "deepnorm-near-identity" else range(1)
    ours = claims.check(claim, seeds=seeds, jobs=1)
    monkeypatch.setitem(registry._entries, name, registry[impostor])
    theirs = claims.check(claim, seeds=seeds, jobs=1)
    assert (ours.verdict, theirs.verdict) == (before, after)
    assert [regime.verdict for regime in ours.regimes] != [regime.verdict for regime in theirs.regimes]


def sweep(depth=16, **fields):
    spec = ModelSpec(placement="pre", depth=depth, width=32, activation="relu", **fields)
    data = Random(batch=1, tokens=16)
    return concat([cells.run_cell(cells.Cell(spec, seed, data)) for seed in range(3)])


def copies(spec, *, seed=0, dtype=None):
    model = build(spec, seed=seed)
    first = model.stack("decoder").blocks[0].state_dict()
    for block in model.stack("decoder").blocks:
        block.load_state_dict(first)
    return model


def test_blocks_that_are_copies_have_updates_that_correlate(monkeypatch):
    claim = "update-uncorrelated-with-stream"
    ours = claims.judge(claim, sweep())
    monkeypatch.setattr(cells, "build", copies)
    theirs = claims.judge(claim, sweep())
    assert ours.verdict == "supported" and theirs.verdict != "supported"
    (before,), (after,) = ([r.effect for r in verdict.regimes if r.n_seeds] for verdict in (ours, theirs))
    assert after > 2 > 2 * before


@torch.no_grad()
def shrinking(spec, *, seed=0, dtype=None):
    """MLPs that also subtract a share of what they read: relu(z) − relu(−z) = z."""
    model, eye = build(spec, seed=seed), torch.eye(spec.width)
    for block in model.stack("decoder").blocks:
        mlp = block.sublayers["mlp"].mixer
        mlp.up.weight[: 2 * spec.width] = torch.cat([eye, -eye])
        mlp.down.weight[:, : 2 * spec.width] = -0.3 * torch.cat([eye, -eye], dim=1)
    return model


def test_updates_that_point_against_the_stream_shrink_it_and_are_noticed(monkeypatch):
    ours = sweep(attention="none")
    monkeypatch.setattr(cells, "build", shrinking)
    theirs = sweep(attention="none")
    verdicts = [claims.judge("update-uncorrelated-with-stream", table).verdict for table in (ours, theirs)]
    assert verdicts == ["supported", "refuted"]
    last, first = (
        [table.query(f"quantity == 'mean_square' and site == 'stream' and layer == {layer}")["value"].mean()
         for table in (ours, theirs)]
        for layer in (16, 0)
    )  # fmt: skip
    assert last[0] > first[0] and last[1] < first[1]
