"""A block that runs several times, and blocks that hold sub-layers of one kind twice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.inspection.reading import reading

pytestmark = [
    pytest.mark.needs("transformers"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"),
]

Value = Callable[..., float]


def _albert() -> nn.Module:
    import transformers

    sizes: dict[str, Any] = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4)
    config = transformers.AlbertConfig(embedding_size=16, vocab_size=50, max_position_embeddings=40, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.AlbertModel(config, add_pooling_layer=False).double().eval()


def _conformer() -> nn.Module:
    import transformers

    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16),
        conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2, conv_depthwise_kernel_size=5, position_embeddings_type="relative",
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.Wav2Vec2ConformerModel(config).double().eval()


def _tokens() -> Tensor:
    return torch.randint(3, 50, (3, 7), generator=torch.Generator().manual_seed(0))


def _sounds() -> Tensor:
    return torch.randn((2, 400), generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _mean_square(x: Tensor) -> float:
    return float(x.detach().square().mean())


@pytest.mark.parametrize("reentrant", [None, False])
def test_every_turn_of_a_shared_block_is_a_layer(reentrant: bool | None, value: Value) -> None:
    model = _albert()
    found = nl.discover(model)
    assert (found.placement, found.stacks[0].depth) == ("post", 4)
    with nl.record(model) as recorder:
        result = model(_tokens(), output_hidden_states=True)
        for state in result.hidden_states:
            state.retain_grad()
        result[0].square().mean().backward()
    table = recorder.table()
    assert table["call"].isna().all()
    for layer, state in enumerate(result.hidden_states):
        here = {"layer": layer, "sublayer": "mlp" if layer else "embed"}
        assert value(table, site="stream", quantity="mean_square", **here) == pytest.approx(
            _mean_square(state), rel=1e-12
        )
        assert value(table, site="stream_grad", quantity="l2", **here) == pytest.approx(
            float(state.grad.norm()), rel=1e-12
        )
    pairs = table[table["quantity"] == "update_ratio"]
    assert len(pairs) == 8 and pairs["value"].notna().all() and pairs["value"].nunique() == 8


def test_the_parameters_of_a_shared_block_count_once(squares: Callable[..., Any]) -> None:
    model = _albert()
    with nl.record(model) as recorder:
        model(_tokens())[0].square().mean().backward()
    recorded, own = squares(model, recorder.table())
    assert recorded == pytest.approx(own, rel=1e-9)


def test_the_norms_of_a_shared_block_have_roles() -> None:
    found = nl.discover(_albert())
    roles = {parameter.name: (parameter.address.layer, parameter.role) for parameter in found.plan.parameters}
    layer = "encoder.albert_layer_groups.0.albert_layers.0"
    for norm in (f"{layer}.attention.LayerNorm", f"{layer}.full_layer_layer_norm"):
        assert roles[f"{norm}.weight"] == (1, "norm_gain") and roles[f"{norm}.bias"] == (1, "norm_bias")
    assert "other" not in {role for _, role in roles.values()}


def test_half_feed_forwards_and_convolutions() -> None:
    model = _conformer()
    found = nl.discover(model, {"input_values": _sounds()})
    (stack,) = found.stacks
    assert stack.depth == 2 and len(stack.sublayers) == 8
    assert [part.sublayer for part in stack.sublayers[:4]] == ["mlp", "attn", "attn", "mlp"]
    assert [part.branch_scale for part in stack.sublayers[:4]] == [(0.5,), (), (), (0.5,)]
    # The last half has a norm before it, and the norm on its sum is the block's.
    assert [part.placement for part in stack.sublayers] == ["pre"] * 8
    assert [part.norms[-1].path for part in stack.sublayers if part.has("outer")] == [
        f"encoder.layers.{block}.final_layer_norm" for block in (0, 1)
    ]
    assert (stack.placement, stack.reason) == ("mixed", "pre, and a norm on the stream closes the block")
    assert "x ← LN(x + 0.5·MLP(LN(x)))    blocks 1-2" in str(found)
    assert "x ← x + Attn(LN(x))    blocks 1-2\n" in str(found)
    assert "x ← x + Mix(LN(x))    blocks 1-2\n" in str(found)  # its convolution has neither queries nor keys


def test_the_last_half_and_the_blocks_norm_make_the_next_stream() -> None:
    model = _conformer()
    plan = nl.discover(model, {"input_values": _sounds()}).plan
    sites = {
        one.port: one.address.site for one in plan.observed if one.address.name == "mlp 2" and one.address.layer == 1
    }
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), reading(model, sites, (2, 1), lambda port, x: seen.update({sites[port]: x.clone()})):
        model(_sounds())
    block = model.encoder.layers[0]
    expected = block.final_layer_norm(seen["skip"] + 0.5 * block.ffn2(block.ffn2_layer_norm(seen["skip"])))
    torch.testing.assert_close(seen["stream"], expected, rtol=1e-12, atol=1e-12)


def test_one_sub_layer_with_norms_before_it_and_on_its_sum_stays_unknown() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.LayerNorm(8), nn.LayerNorm(8)
            self.mix = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

        def forward(self, x: Tensor) -> Tensor:
            return self.after(x + self.mix(self.before(x)))

    (stack,) = nl.discover(nn.Sequential(*(Block() for _ in range(3))), torch.randn(2, 5, 8)).stacks
    assert stack.placement == "unknown" and "inner and outer" in stack.reason


def test_two_halves_of_a_block_have_rows_of_their_own(squares: Callable[..., Any]) -> None:
    model = _conformer()
    plan = nl.discover(model, {"input_values": _sounds()}).plan
    seen: dict[tuple[int, str], Tensor] = {}
    for layer, block in enumerate(model.encoder.layers, 1):
        for name, norm in (("", block.ffn1_layer_norm), ("mlp 2", block.ffn2_layer_norm)):

            def keep(module: nn.Module, args: Any, out: Tensor, key: tuple[int, str] = (layer, name)) -> None:
                seen[key] = out.detach().clone()

            norm.register_forward_hook(keep)
    with nl.record(model, sites=plan) as recorder:
        model(_sounds())[0].square().mean().backward()
    table = recorder.table()
    rows = table[(table["site"] == "input") & (table["sublayer"] == "mlp") & (table["quantity"] == "mean_square")]
    found = rows.set_index(["layer", "name"])["value"].to_dict()
    assert found.keys() == seen.keys()
    for key, tensor in seen.items():
        assert found[key] == pytest.approx(_mean_square(tensor), rel=1e-12)
    recorded, own = squares(model, table)
    assert recorded == pytest.approx(own, rel=1e-9)
