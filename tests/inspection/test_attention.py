"""Attention logits of any model, against products written out."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normlab as nl
from normlab.inspection import Inspection
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
    assert set(rows["status"].astype(str)) == {"no softmax over all pairs of tokens was seen here"}
    (finding,) = [one for one in found.findings if one.topic == "attention logits"]
    assert finding.says.startswith("Not seen") and not finding.found
    assert [(one["layer"], one["sublayer"]) for one in finding.numbers["unseen"]] == [
        (1, "attn"),
        (2, "attn"),
        (3, "attn"),
    ]


def test_logits_that_are_not_finite_are_counted_and_those_of_masks_are_not() -> None:
    x = torch.zeros(1, 3, 2, 2).masked_fill(torch.ones(2, 2).triu(1) > 0, -torch.inf)
    x[0, 0, 1, 0] = torch.nan
    x[0, 1, 1, 1] = torch.inf
    x[0, 2, 1, 1] = -torch.inf  # a pair that only this head masks
    assert [(head.pairs, head.nonfinite) for head in head_logits(x, batch=1)] == [(2, 1), (2, 1), (2, 0)]


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("groups", [1, 2])
def test_blocks_that_share_their_matrices_have_logits_in_every_turn(groups: int) -> None:
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 16, "embedding_size": 16, "num_hidden_layers": 4}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 32, "num_hidden_groups": groups}
    model = transformers.AlbertModel(transformers.AlbertConfig(**sizes)).eval()
    turns: list[list[float]] = []

    def products(module: nn.Module, args: tuple[torch.Tensor, ...], kwargs: object) -> None:
        q, k = (one(args[0]).unflatten(-1, (2, 8)).transpose(1, 2) for one in (module.query, module.key))
        turns.append((q @ k.mT / 8**0.5).abs().amax((0, 2, 3)).tolist())

    found = nl.inspect(model, tokens=8)
    with torch.no_grad():
        for group in model.encoder.albert_layer_groups:
            group.albert_layers[0].attention.register_forward_pre_hook(products, with_kwargs=True)
        model(_tokens(found))
    rows = found.table[(found.table["site"] == "logits") & (found.table["quantity"] == "max_abs")]
    assert len(rows) == 8 and not found.look.unseen
    assert [[one.max_abs for one in heads] for heads in found.look.heads.values()] == [
        pytest.approx(turn, rel=1e-5) for turn in turns
    ]


def _tokens(found: Inspection) -> torch.Tensor:
    tokens, _ = nl.data.Text(int(found.data["batch"]), int(found.data["tokens"])).draw(0)
    return tokens
