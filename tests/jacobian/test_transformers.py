"""Parts of tiny models of transformers, by the chain rule and by an ordinary backward pass."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normlab.jacobian import chain, closed_form, dense, formed, measure, parts

pytestmark = [
    pytest.mark.needs("transformers"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"),
]

SIZES: dict[str, Any] = dict(
    hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, vocab_size=30,
    max_position_embeddings=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(n_embd=8, n_layer=2, n_head=2, vocab_size=30, n_positions=20)),
    "llama": ("LlamaForCausalLM", "LlamaConfig", SIZES | dict(num_key_value_heads=1)),
    "bert": ("BertModel", "BertConfig", SIZES),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", SIZES | dict(num_key_value_heads=2)),
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        dict(d_model=8, d_ff=16, num_layers=2, num_heads=2, d_kv=4, vocab_size=30, decoder_start_token_id=0),
    ),
}  # fmt: skip


def _made(name: str) -> tuple[nn.Module, dict[str, Any]]:
    import transformers

    model, config, sizes = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = getattr(transformers, model)(getattr(transformers, config)(**sizes)).double().eval()
    tokens = torch.arange(3, 13).reshape(2, 5)
    batch = {"input_ids": tokens, "use_cache": False}
    return built, {**batch, "decoder_input_ids": tokens[:, :4]} if name == "t5" else batch


def _jacobian(part: Any) -> Tensor:
    return dense(part, part.point)


def _close(one: Tensor, two: Tensor, within: float) -> None:
    assert float(torch.linalg.norm(one - two)) < within * float(torch.linalg.norm(two))


@pytest.mark.parametrize("name", MODELS)
def test_blocks_sub_layers_and_the_chain_agree(name: str) -> None:
    found = parts(*_made(name))
    whole = _jacobian(found.blocks(1, 2))
    steps = [_jacobian(found.sublayer(layer, sub)) for layer in (2, 1) for sub in reversed(found.sublayers(layer))]
    assert len(steps) == (6 if name == "t5" else 4)
    _close(torch.linalg.multi_dot(steps), whole, 1e-12)
    with chain(found) as blocks:
        _close(formed(blocks.between(0, 2)), whole, 1e-12)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_a_block_is_what_a_backward_pass_gives(name: str) -> None:
    model, batch = _made(name)
    states = model(**batch, output_hidden_states=True).hidden_states
    rows = [torch.autograd.grad(one, states[0], retain_graph=True)[0].flatten() for one in states[1].flatten()]
    _close(_jacobian(parts(model, batch).block(1)), torch.stack(rows), 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_their_norms_have_closed_forms(name: str) -> None:
    found = parts(*_made(name))
    norm = found.norm(2, "mlp")
    _close(closed_form(norm.module, norm.point).matrix(), _jacobian(norm), 1e-5)


def test_they_are_measured_into_the_table() -> None:
    model, batch = _made("gpt2")
    table = measure(model, batch, quantities=["singular_value"], k=1)
    blocks = [_jacobian(parts(model, batch).block(layer)) for layer in (1, 2)]
    assert table["value"].tolist() == pytest.approx([float(torch.linalg.matrix_norm(one, 2)) for one in blocks])
    assert table["depth"].tolist() == [2, 2]
