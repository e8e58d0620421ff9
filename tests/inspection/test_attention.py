"""Attention logits of any model, against products written out."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normlab as nl
from normlab.inspection.attention import head_logits, softmaxes
from normlab.inspection.heads import Heads
from normlab.recording.zoo import zoo_plan


def test_masked_pairs_never_count() -> None:
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    closed = torch.full((4, 4), torch.finfo(torch.float32).min).triu(1)
    own = x.tril().double()
    for masked in (x + closed, x.masked_fill(closed < 0, -torch.inf), (x + closed).flatten(0, 1)):
        for head, found in enumerate(head_logits(masked, batch=2)):
            assert found.pairs == 20 and found.max_abs == float(own[:, head].abs().max())
            assert found.mean == pytest.approx(float(own[:, head].sum()) / 20, rel=1e-12)
            assert found.mean_square == pytest.approx(float(own[:, head].square().sum()) / 20, rel=1e-12)


def test_a_large_negative_logit_of_one_head_is_no_mask() -> None:
    x = torch.zeros(1, 2, 3, 3)
    x[0, 1, 2, 0] = -20000
    assert [found.max_abs for found in head_logits(x, batch=1)] == [0, 20000]


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_is_taken_apart(causal: bool) -> None:
    query, key, value = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    seen: list[torch.Tensor] = []
    with torch.no_grad(), softmaxes(seen.append):
        F.scaled_dot_product_attention(query, key, value, is_causal=causal)
    logits = query @ key.mT / 8**0.5
    visible = torch.ones(5, 5, dtype=torch.bool).tril() if causal else torch.ones(5, 5, dtype=torch.bool)
    (found,) = seen
    torch.testing.assert_close(found[..., visible], logits[..., visible])
    assert not torch.isfinite(found[..., ~visible]).any()


def test_the_zoos_heads_are_those_of_its_recorder() -> None:
    model = nl.build(nl.ModelSpec(placement="pre", depth=2, width=16, heads=4, kv_heads=2, position="rope"), seed=0)
    tokens, _ = nl.data.random_batch(batch=2, tokens=6)
    heads = Heads(model, zoo_plan(model), (2, 6))
    with nl.record(model, sites=["logits"]) as recorder, torch.no_grad(), heads.watching():
        model(tokens)
    table = recorder.table()
    rows = table[table["quantity"].isin(["max_abs", "rms"])]
    assert len(rows) == 2 * 2 * 4 and len(heads.found) == 2
    for row in rows.itertuples():
        (own,) = [each for at, each in heads.found.items() if at.layer == row.layer]
        value = own[row.head].max_abs if row.quantity == "max_abs" else own[row.head].mean_square ** 0.5
        assert value == pytest.approx(row.value, rel=1e-5)


def test_multihead_attention_of_torch() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    plan = nl.discover(model, x).plan
    heads = Heads(model, plan, (2, 5))
    with torch.no_grad(), heads.watching():
        model(x)
    first = model.layers[0]
    q, k, _ = F.linear(first.norm1(x), first.self_attn.in_proj_weight, first.self_attn.in_proj_bias).chunk(3, -1)
    q, k = (one.unflatten(-1, (4, 4)).transpose(1, 2) for one in (q, k))
    expected = (q @ k.mT / 2).abs().amax((0, 2, 3)).tolist()
    assert sorted(at.layer or 0 for at in heads.found) == [1, 2, 3]
    (own,) = [each for at, each in heads.found.items() if at.layer == 1]
    assert [head.max_abs for head in own] == pytest.approx(expected, rel=1e-5)


def test_heads_that_are_not_seen_are_rows_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normlab.inspection.heads.fits", lambda *_: False)  # as where attention runs in a kernel
    found = nl.inspect(nl.build(nl.ModelSpec(depth=3, width=16, heads=2)), tokens=8)
    rows = found.table[found.table["site"] == "logits"]
    assert rows["layer"].tolist() == [1, 2, 3] and rows["value"].isna().all()
    assert set(rows["status"].astype(str)) == {"no softmax over pairs of tokens was seen here"}
    (finding,) = [one for one in found.findings if one.topic == "attention logits"]
    assert finding.says.startswith("Not seen") and not finding.found
    assert finding.numbers["unseen"] == ["attn of block 1", "attn of block 2", "attn of block 3"]


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
def test_blocks_that_share_their_matrices_are_not_forgotten() -> None:
    import transformers

    sizes = {"vocab_size": 256, "hidden_size": 16, "embedding_size": 16, "num_hidden_layers": 3}
    config = transformers.AlbertConfig(**sizes, num_attention_heads=2, intermediate_size=32)
    found = nl.inspect(transformers.AlbertModel(config), tokens=8)
    rows = found.table[(found.table["site"] == "logits") & (found.table["quantity"] == "max_abs")]
    assert sorted(rows["layer"].unique().tolist()) == [1, 2, 3]
