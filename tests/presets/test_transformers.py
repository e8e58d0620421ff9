"""Presets against the reference implementations: with the same weights they compute the same.

The models are tiny and random, in float64; those of the Llama family compute norms and rotations in float32 even
so. What a preset names under ``differs`` is set up in the reference model as the preset has it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normlab as nl

pytestmark = pytest.mark.needs("transformers")

SMALL = dict(depth=2, width=32, heads=4, vocab=50, context=24)
#: The sizes in the words of the reference configurations.
SIZES = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, vocab_size=50, max_position_embeddings=24)
ROPE = dict(rope_type="default", rope_theta=10_000.0)

Named = Iterator[tuple[str, Tensor]]


def _affine(name: str, module: nn.Module) -> Named:
    yield f"{name}.gain", module.weight
    if getattr(module, "bias", None) is not None:
        yield f"{name}.bias", module.bias


def _matrix(name: str, weight: Tensor, bias: Tensor | None) -> Named:
    yield f"{name}.weight", weight
    if bias is not None:
        yield f"{name}.bias", bias


def _linear(name: str, module: nn.Module) -> Named:
    yield from _matrix(name, module.weight, module.bias)


def _gpt2(model: Any) -> Named:
    yield "embedding.token", model.transformer.wte.weight
    yield "embedding.position", model.transformer.wpe.weight
    yield from _affine("final_norm", model.transformer.ln_f)
    for number, block in enumerate(model.transformer.h):
        attn, mlp = f"blocks.{number}.sublayers.attn", f"blocks.{number}.sublayers.mlp"
        yield from _affine(f"{attn}.inner_norm", block.ln_1)
        yield from _affine(f"{mlp}.inner_norm", block.ln_2)
        packed = block.attn.c_attn
        for role, weight, bias in zip("qkv", packed.weight.chunk(3, dim=1), packed.bias.chunk(3), strict=True):
            yield from _matrix(f"{attn}.mixer.{role}", weight.T, bias)
        for name, module in ((f"{attn}.mixer.o", block.attn.c_proj), (f"{mlp}.mixer.up", block.mlp.c_fc)):
            yield from _matrix(name, module.weight.T, module.bias)
        yield from _matrix(f"{mlp}.mixer.down", block.mlp.c_proj.weight.T, block.mlp.c_proj.bias)


def _bert(model: Any) -> Named:
    embeddings = model.embeddings
    yield "embedding.token", embeddings.word_embeddings.weight
    yield "embedding.position", embeddings.position_embeddings.weight + embeddings.token_type_embeddings.weight[0]
    yield from _affine("embedding.norm", embeddings.LayerNorm)
    for number, block in enumerate(model.encoder.layer):
        attn, mlp = f"blocks.{number}.sublayers.attn", f"blocks.{number}.sublayers.mlp"
        inside = block.attention.self
        for role, module in (("q", inside.query), ("k", inside.key), ("v", inside.value)):
            yield from _linear(f"{attn}.mixer.{role}", module)
        yield from _linear(f"{attn}.mixer.o", block.attention.output.dense)
        yield from _affine(f"{attn}.outer_norm", block.attention.output.LayerNorm)
        yield from _linear(f"{mlp}.mixer.up", block.intermediate.dense)
        yield from _linear(f"{mlp}.mixer.down", block.output.dense)
        yield from _affine(f"{mlp}.outer_norm", block.output.LayerNorm)


def _gpt_neox(model: Any) -> Named:
    yield "embedding.token", model.gpt_neox.embed_in.weight
    yield from _affine("final_norm", model.gpt_neox.final_layer_norm)
    for number, block in enumerate(model.gpt_neox.layers):
        attn, mlp = f"blocks.{number}.sublayers.attn", f"blocks.{number}.sublayers.mlp"
        yield from _affine(f"{attn}.inner_norm", block.input_layernorm)
        yield from _affine(f"{mlp}.inner_norm", block.post_attention_layernorm)
        packed = block.attention.query_key_value  # q, k and v of one head, then those of the next
        weights, biases = packed.weight.view(4, 3, 8, 32), packed.bias.view(4, 3, 8)
        for part, role in enumerate("qkv"):
            yield from _matrix(f"{attn}.mixer.{role}", weights[:, part].flatten(0, 1), biases[:, part].flatten())
        yield from _linear(f"{attn}.mixer.o", block.attention.dense)
        yield from _linear(f"{mlp}.mixer.up", block.mlp.dense_h_to_4h)
        yield from _linear(f"{mlp}.mixer.down", block.mlp.dense_4h_to_h)


def _llama(model: Any) -> Named:
    yield "embedding.token", model.model.embed_tokens.weight
    yield from _affine("final_norm", model.model.norm)
    for number, block in enumerate(model.model.layers):
        attn, mlp = f"blocks.{number}.sublayers.attn", f"blocks.{number}.sublayers.mlp"
        for role in "qkvo":
            yield from _linear(f"{attn}.mixer.{role}", getattr(block.self_attn, f"{role}_proj"))
        for role in ("up", "gate", "down"):
            yield from _linear(f"{mlp}.mixer.{role}", getattr(block.mlp, f"{role}_proj"))
        for role in "qk":
            if hasattr(block.self_attn, f"{role}_norm"):
                yield from _affine(f"{attn}.mixer.{role}_norm.norm", getattr(block.self_attn, f"{role}_norm"))
        if hasattr(block, "input_layernorm"):
            yield from _affine(f"{attn}.inner_norm", block.input_layernorm)
            yield from _affine(f"{mlp}.inner_norm", block.post_attention_layernorm)
        else:
            yield from _affine(f"{attn}.output_norm", block.post_attention_layernorm)
            yield from _affine(f"{mlp}.output_norm", block.post_feedforward_layernorm)


#: For each preset: the reference model, its configuration, where its weights go, further sizes of ours, and the error.
CASES: dict[str, tuple[str, dict[str, Any], Callable[[Any], Named], dict[str, Any], float]] = {
    "gpt2": ("GPT2LMHeadModel", {}, _gpt2, {}, 1e-10),
    "bert": ("BertModel", dict(intermediate_size=128), _bert, {}, 1e-10),
    "gpt-neox": (
        "GPTNeoXForCausalLM",
        dict(intermediate_size=128, hidden_act="gelu_fast", rope_parameters=ROPE | {"partial_rotary_factor": 1.0}),
        _gpt_neox,
        {},
        1e-5,
    ),
    "llama": (
        "LlamaForCausalLM",
        dict(intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=ROPE),
        _llama,
        dict(mlp_width=48, kv_heads=2),
        1e-5,
    ),
    "qwen3": (
        "Qwen3ForCausalLM",
        dict(
            intermediate_size=48,
            num_key_value_heads=2,
            head_dim=12,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            rope_parameters=ROPE,
        ),
        _llama,
        dict(mlp_width=48, kv_heads=2, head_width=12),
        1e-5,
    ),
    "olmo2": (
        "Olmo2ForCausalLM",
        dict(intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=ROPE),
        _llama,
        dict(mlp_width=48, kv_heads=2),
        1e-5,
    ),
}


def _reference(name: str) -> Any:
    """Build the tiny reference model in float64, with no parameter left at 0 or 1."""
    import transformers

    kind, options, *_ = CASES[name]
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**SIZES, **options, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    model = model_class(config).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return model


def test_every_preset_has_a_reference() -> None:
    assert set(CASES) == set(nl.presets.PRESETS)


@pytest.mark.parametrize("name", CASES)
def test_with_the_same_weights_the_outputs_are_the_same(name: str) -> None:
    _, _, weights, sizes, error = CASES[name]
    reference = _reference(name)
    model = nl.build(nl.presets.spec(name, **SMALL, **sizes), dtype=torch.float64)
    stack = model.stacks["encoder" if name == "bert" else "decoder"]
    stack.load_state_dict({key: value.detach() for key, value in weights(reference)}, strict=True)
    tokens = torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        if name == "bert":
            ours, theirs = stack(tokens), reference(tokens).last_hidden_state
        else:
            if not model.spec.tie_embeddings:
                model.head.weight.copy_(reference.get_output_embeddings().weight)
            ours, theirs = model(tokens), reference(tokens).logits
    assert theirs.std() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=error, atol=error)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"bert"}))
def test_nothing_of_the_reference_is_left_over(name: str) -> None:
    spec = nl.presets.spec(name, **SMALL, **CASES[name][3])
    theirs = sum(parameter.numel() for parameter in _reference(name).parameters())
    assert theirs == sum(parameter.numel() for parameter in nl.build(spec).parameters())
