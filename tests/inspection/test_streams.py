"""What blocks make of another model's stream and memory, against blocks that are run by hand."""

import copy
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.inspection import Comparison, compare_runs
from normlab.models import Transformer

TOKENS = 12
SPEC = nl.ModelSpec(kind="encoder-decoder", depth=2, encoder_depth=2, width=16, heads=2)


def added(found: Comparison, stack: str, quantity: str = "added") -> dict[int, float]:
    rows = found.table[(found.table["quantity"] == quantity) & (found.table["stack"] == stack)]
    return {int(row.layer): float(row.value) for row in rows.itertuples()}


@torch.no_grad()
def by_hand(model: Transformer) -> tuple[list[Tensor], Tensor]:
    """The decoder's stream after each block, the embedding first, and what its cross-attention reads."""
    tokens, targets = nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)
    memory, stack = model.stack("encoder")(tokens), model.stack("decoder")
    shifted = targets.roll(1, 1)
    shifted[:, 0] = 0
    xs = [stack.embedding(model_tokens(model, targets))]
    for block in stack.blocks:
        xs.append(block(xs[-1], memory))
    return xs, memory


def model_tokens(model: Transformer, targets: Tensor) -> Tensor:
    """The tokens that the decoder embeds."""
    seen: list[Tensor] = []
    handle = model.stack("decoder").embedding.register_forward_hook(lambda _, args, result: seen.append(args[0]))
    tokens, _ = nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)
    model(tokens, targets)
    handle.remove()
    return seen[0]


def median(difference: Tensor, x: Tensor) -> float:
    return float((difference.double().norm(dim=-1) / x.double().norm(dim=-1)).quantile(0.5))


def test_a_decoder_inherits_the_memory_of_another_encoder() -> None:
    one = nl.build(SPEC, seed=0)
    two = copy.deepcopy(one)
    with torch.no_grad():
        two.stack("encoder").blocks[1].sublayers["mlp"].mixer.down.weight.mul_(3)
    found = nl.compare(one, two, tokens=TOKENS)
    assert set(added(found, "decoder").values()) == {0.0} and added(found, "encoder")[2] > 0.1
    inherited = added(found, "decoder", "inherited")
    assert inherited == pytest.approx(
        {layer: row for layer, row in added(found, "decoder", "divergence").items() if layer}
    )
    assert found.parts is not None and found.parts.stack == "encoder"


@torch.no_grad()
def test_a_decoder_adds_what_its_blocks_make_of_the_same_stream_and_memory() -> None:
    one, two = nl.build(SPEC, seed=0), nl.build(SPEC, seed=1)
    with torch.enable_grad():
        found = nl.compare(one, two, tokens=TOKENS)
    (a, memory), (b, _) = by_hand(one), by_hand(two)
    for layer, block in enumerate(two.stack("decoder").blocks, 1):
        y = block(a[layer - 1], memory)
        assert added(found, "decoder")[layer] == pytest.approx(median(y - a[layer], a[layer]), rel=1e-5)
        assert added(found, "decoder", "inherited")[layer] == pytest.approx(median(b[layer] - y, a[layer]), rel=1e-5)
    assert "the blocks before and the memory account for" in str(found)


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
def test_a_decoder_of_transformers_inherits_its_memory_too(checkpoints: ModuleType) -> None:
    one = checkpoints.model("t5")
    two = copy.deepcopy(one)
    with torch.no_grad():
        two.encoder.block[0].layer[1].DenseReluDense.wo.weight.mul_(3)
    found = nl.compare(one, two, tokens=TOKENS)
    assert set(added(found, "decoder").values()) == {0.0} and added(found, "encoder")[1] > 0.1

    def __init__(self) -> None:
        super().__init__()
        self.model = nl.build(SPEC, seed=0)


def test_memories_of_another_shape_leave_added_unknown() -> None:
    from normlab.inspection.streams import Stream, fed
    from normlab.recording import discover

    model = nl.build(SPEC, seed=0)
    own, other = Stream(memory={1: torch.ones(1, 2, 16)}), Stream(memory={1: torch.ones(1, 3, 16)})
    found = fed(model, discover(model), "decoder", lambda: None, own, other)
    assert not found.after and "differs in shape" in found.reason


def test_models_in_training_mode_are_compared_without_their_dropout() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.5, batch_first=True)
    one = torch.nn.Sequential(
        torch.nn.Embedding(256, 16), torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    )
    two = copy.deepcopy(one)
    assert (
        "the same to the bit" in str(nl.compare(one, two, tokens=TOKENS)) and one.training and two[1].layers[0].training
    )


class Macaron(nn.Module):
    """A block of an MLP, attention and another MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(2)
        )
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x)
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.second(x)


@pytest.mark.parametrize(("which", "name", "words"), [("first", "", "the MLP"), ("second", "mlp 2", "MLP 2")])
def test_blocks_with_two_mlps_are_compared_in_the_order_in_which_they_run(which: str, name: str, words: str) -> None:
    torch.manual_seed(0)
    one = nn.Sequential(nn.Embedding(256, 8), *(Macaron() for _ in range(3)), nn.Linear(8, 256))
    two = copy.deepcopy(one)
    with torch.no_grad():
        getattr(two[2], which)[3].weight.mul_(2)
    found = nl.compare(one, two, tokens=TOKENS)
    assert f"The streams part in {words} of block 2: there" in str(found) and found.to_dict()["parts"]["name"] == name
    assert found.layers["sublayer"].tolist() == ["embed", *["mlp", "attn", "mlp 2"] * 3]
    added = found.layers.set_index(["layer", "sublayer"])["added"]
    assert added[1, "mlp 2"] == added[3, "mlp 2"] == 0 < added[2, "mlp 2"]
    ratios = compare_runs(*(nl.inspect(model, tokens=TOKENS).table for model in (one, two)), "one", "two")
    assert ratios.parts is not None and ratios.parts.layer == 2 and "mlp 2" in ratios.layers["sublayer"].tolist()
