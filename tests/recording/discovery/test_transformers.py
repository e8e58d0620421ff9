"""Discovery on tiny random models of transformers, in float64: every block is rebuilt from its parts."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import normlab as nl
from normlab.recording import Architecture
from normlab.recording.discovery.sites import NO_PAIR

pytestmark = [
    pytest.mark.needs("transformers"),
    # transformers says so of every tiny configuration.
    pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"),
]

#: The sizes, in the words of most configurations.
SIZES: dict[str, Any] = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=50,
    max_position_embeddings=40,
)  # fmt: skip
TOKENS: dict[str, Any] = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED: dict[str, Any] = dict(**SIZES, **TOKENS, num_key_value_heads=2)
GPT: dict[str, Any] = dict(n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=40, **TOKENS)
FALCON: dict[str, Any] = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=50, **TOKENS)
BLOOM: dict[str, Any] = dict(hidden_size=32, n_layer=2, n_head=4, vocab_size=50, **TOKENS)
OPT: dict[str, Any] = dict(
    hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=50,
    max_position_embeddings=40, **TOKENS,
)  # fmt: skip
BOTH: dict[str, Any] = dict(
    d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_layers=2, decoder_layers=2,
    encoder_attention_heads=4, decoder_attention_heads=4, vocab_size=50, **TOKENS,
)  # fmt: skip
#: Name: (model, configuration, sizes, placement, number of norms, kind of the first block's norms).
MODELS: dict[str, tuple[str, str, dict[str, Any], str, int, str]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT, "pre", 5, "layernorm, over 32, bias, eps 1e-05"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, "pre", 5, "rmsnorm, over 32, eps 1e-06"),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED, "pre", 5, "rmsnorm, over 32, eps 1e-06"),
    "mixtral": (
        "MixtralForCausalLM", "MixtralConfig",
        dict(**GROUPED, num_local_experts=4, num_experts_per_tok=2, experts_implementation="eager"),
        "pre", 5, "rmsnorm, over 32, eps 1e-05",
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, "pre", 5, "rmsnorm, over 32, eps 1e-06"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(**GROUPED, head_dim=8), "pre", 9, "rmsnorm, over 32, eps 1e-06"),
    "gemma2": (
        "Gemma2ForCausalLM", "Gemma2Config", dict(**GROUPED, head_dim=8),
        "peri", 9, "rmsnorm, over 32, gain 1 + w, eps 1e-06",
    ),
    "gemma3": (
        "Gemma3ForCausalLM", "Gemma3TextConfig", dict(**GROUPED, head_dim=8),
        "peri", 13, "rmsnorm, over 32, gain 1 + w, eps 1e-06",
    ),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", GROUPED, "pre", 5, "layernorm, over 32, no gain, eps 1e-05"),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED, "reordered", 9, "rmsnorm, over 32, eps 1e-05"),
    "bert": ("BertModel", "BertConfig", SIZES, "post", 5, "layernorm, over 32, bias, eps 1e-12"),
    "roberta": ("RobertaModel", "RobertaConfig", SIZES | TOKENS, "post", 5, "layernorm, over 32, bias, eps 1e-12"),
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        dict(d_model=32, d_ff=64, num_layers=2, num_heads=4, d_kv=8, vocab_size=50, decoder_start_token_id=0),
        "pre", 12, "rmsnorm, over 32, eps 1e-06",
    ),
    "bart": (
        "BartForConditionalGeneration", "BartConfig", dict(**BOTH, max_position_embeddings=40),
        "post", 12, "layernorm, over 32, bias, eps 1e-05",
    ),
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        dict(**BOTH, num_mel_bins=8, max_source_positions=10, max_target_positions=20, decoder_start_token_id=1),
        "pre", 12, "layernorm, over 32, bias, eps 1e-05",
    ),
    "vit": (
        "ViTModel", "ViTConfig",
        dict(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=8,
            patch_size=4,
        ),
        "pre", 5, "layernorm, over 32, bias, eps 1e-12",
    ),
    "opt-125m": ("OPTForCausalLM", "OPTConfig", OPT, "pre", 5, "layernorm, over 32, bias, eps 1e-05"),
    "opt-350m": (
        "OPTForCausalLM", "OPTConfig", dict(**OPT, do_layer_norm_before=False, word_embed_proj_dim=16),
        "post", 4, "layernorm, over 32, bias, eps 1e-05",
    ),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SIZES, "parallel", 5, "layernorm, over 32, bias, eps 1e-05"),
    "gpt-neox, not parallel": (
        "GPTNeoXForCausalLM", "GPTNeoXConfig", dict(**SIZES, use_parallel_residual=False),
        "pre", 5, "layernorm, over 32, bias, eps 1e-05",
    ),
    "gpt-j": (
        "GPTJForCausalLM", "GPTJConfig", dict(**GPT, rotary_dim=4), "parallel", 3, "layernorm, over 32, bias, eps 1e-05"
    ),
    "falcon": ("FalconForCausalLM", "FalconConfig", FALCON, "parallel", 3, "layernorm, over 32, bias, eps 1e-05"),
    "falcon, two norms": (
        "FalconForCausalLM", "FalconConfig", dict(**FALCON, new_decoder_architecture=True, num_kv_heads=2),
        "parallel", 5, "layernorm, over 32, bias, eps 1e-05",
    ),
    "falcon, not parallel": (
        "FalconForCausalLM", "FalconConfig",
        dict(**FALCON, parallel_attn=False, alibi=True, multi_query=False, bias=True),
        "pre", 5, "layernorm, over 32, bias, eps 1e-05",
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", BLOOM, "pre", 6, "layernorm, over 32, bias, eps 1e-05"),
    "bloom, normed skip": (
        "BloomForCausalLM", "BloomConfig", dict(**BLOOM, apply_residual_connection_post_layernorm=True),
        "unknown", 6, "layernorm, over 32, bias, eps 1e-05",
    ),
    "phi": ("PhiForCausalLM", "PhiConfig", SIZES | TOKENS, "parallel", 3, "layernorm, over 32, bias, eps 1e-05"),
    "cohere": ("CohereForCausalLM", "CohereConfig", GROUPED, "parallel", 3, "layernorm, over 32, eps 1e-05"),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM", "DeepseekV3Config",
        dict(
            **SIZES, **TOKENS, num_key_value_heads=4, moe_intermediate_size=16, first_k_dense_replace=1,
            n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, kv_lora_rank=8, q_lora_rank=12,
            qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, experts_implementation="eager",
        ),
        "pre", 9, "rmsnorm, over 32, eps 1e-06",
    ),
}  # fmt: skip


def _model(name: str) -> nn.Module:
    import transformers

    kind, config, sizes, *_ = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: nn.Module = getattr(transformers, kind)(getattr(transformers, config)(**sizes))
        for parameter in model.parameters():
            # Gains other than 1 and biases other than 0.
            nn.init.normal_(parameter, 0.1, 0.2)
    return model.double().eval()


def _batch(model: nn.Module) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 50, (3, 7), generator=generator)
    images = dict(pixel_values=torch.randn(3, 3, 8, 8, generator=generator, dtype=torch.float64))
    sounds = dict(input_features=torch.randn(3, 8, 20, generator=generator, dtype=torch.float64))
    batch = {"pixel_values": images, "input_features": sounds}.get(str(model.main_input_name), {"input_ids": tokens})
    return {**batch, "decoder_input_ids": tokens[:, :4]} if model.config.is_encoder_decoder else batch


def _recorded(model: nn.Module) -> tuple[pd.DataFrame, Any]:
    with nl.record(model) as recorder:
        result = model(**_batch(model), output_hidden_states=True)
        result[0].square().mean().backward()
    return recorder.table(), result


@pytest.mark.parametrize("name", MODELS)
def test_placement_norms_and_every_block_from_its_parts(name: str, rebuilds: Callable[..., int]) -> None:
    *_, placement, norms, kind = MODELS[name]
    model = _model(name)
    found = nl.discover(model)
    assert found.placement == placement, str(found)
    assert len(found.norms) == norms
    positions = ("inner", "outer", "output")
    first = next(norm for norm in found.stacks[0].sublayers[0].norms if norm.position in positions)
    assert str(first.kind) == kind
    sums = sum(
        stack.depth * (1 if placement == "parallel" else 3 if stack.name == "decoder" and len(found.stacks) == 2 else 2)
        for stack in found.stacks
    )
    assert rebuilds(model, found, lambda: model(**_batch(model))) == sums


@pytest.mark.parametrize("name", MODELS)
def test_the_recorder_gets_every_site_and_every_parameter_once(name: str, squares: Callable[..., Any]) -> None:
    model = _model(name)
    table, result = _recorded(model)
    recorded, own = squares(model, table)
    assert recorded == pytest.approx(own, rel=1e-9)
    missing = table[~table["status"].isin(["ok", "exact-zero"]) & (table["site"] != "")]
    quiet = missing["site"].isin(["query", "key", "value", "logits"])
    parallel = missing["status"].isin(["parallel", "no residual sum here"]) & (missing["sublayer"] == "attn")
    of_float_input = missing["status"] == "no gradient required"
    assert (quiet | parallel | of_float_input).all(), missing.to_string()
    states = result.get("hidden_states") or result.get("decoder_hidden_states")
    stack = "encoder" if (table["stack"] == "decoder").sum() == 0 else "decoder"
    rows = table[(table["stack"] == stack) & (table["site"] == "stream") & (table["quantity"] == "mean_square")]
    rows = rows[rows["sublayer"].isin(["embed", "mlp"])].sort_values("layer")
    # The last of them is after a final norm, or after a projection.
    expected = [float(state.detach().square().mean()) for state in states[:2]]
    assert rows["value"].tolist()[:2] == pytest.approx(expected, rel=1e-12)


def _found(name: str) -> Architecture:
    return nl.discover(_model(name))


def test_a_packed_matrix_is_split_into_its_roles() -> None:
    for name, path, rows in (
        ("gpt2", "transformer.h.0.attn.c_attn", 1),
        ("gpt-neox", "gpt_neox.layers.0.attention.query_key_value", 0),
    ):
        model = _model(name)
        table, _ = _recorded(model)
        gradient = model.get_submodule(path).weight.grad
        if rows:
            parts = dict(zip("qkv", gradient.chunk(3, dim=1), strict=True))
        else:
            parts = dict(zip("qkv", gradient.view(4, 3, 8, 32).unbind(1), strict=True))
        found = table[(table["layer"] == 1) & (table["sublayer"] == "attn") & (table["quantity"] == "grad_norm")]
        for role, part in parts.items():
            assert found[found["role"] == role]["value"].item() == pytest.approx(float(part.norm()), rel=1e-12)


def test_norms_inside_attention() -> None:
    assert _found("qwen3").stacks[0].qk_norm == "heads"
    assert _found("gemma3").stacks[0].qk_norm == "heads"
    assert _found("olmo2").stacks[0].qk_norm == "all"
    latent = _found("deepseek-v3").stacks[0]
    assert latent.qk_norm == "none" and latent.sublayers[0].has("latent")


def test_one_norm_or_two_in_a_parallel_block() -> None:
    assert "n = LN(x),  x ← x + Attn(n) + MLP(n)    blocks 1-2" in str(_found("cohere"))
    assert "x ← x + Attn(LN(x)) + MLP(LN(x))    blocks 1-2" in str(_found("gpt-neox"))


def test_norms_that_follow_each_other() -> None:
    names = ("transformer.word_embeddings_layernorm", "transformer.h.0.input_layernorm")
    assert _found("bloom").back_to_back == (names,)


def test_a_mask_counts_only_real_tokens_also_where_a_model_flattens_them() -> None:
    model, batch = _model("opt-125m"), _batch(_model("opt-125m"))
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 4:] = False
    with nl.record(model, mask=mask) as recorder, torch.no_grad():
        model(**batch)
    table = recorder.table()
    assert (table[(table["quantity"] == "count") & (table["site"] == "stream")]["value"] == 18).all()


def test_dropout_that_is_no_module_leaves_no_wrong_update() -> None:
    model = _model("opt-125m").train()
    with nl.record(model) as recorder:
        model(**_batch(model))
    table = recorder.table()
    update = table[table["site"] == "update"]
    pair = update["quantity"].isin(["update_ratio", "alignment", "covariance", "lost_share"])
    assert (update[~pair]["status"] == "no module takes or gives this tensor").all()
    assert pair.any() and (update[pair]["status"] == NO_PAIR).all()


def test_a_plan_of_the_other_mode_gives_no_wrong_pair() -> None:
    model = _model("opt-125m")
    plan = nl.discover(model).plan
    with nl.record(model.train(), sites=plan) as recorder:
        model(**_batch(model))
    table = recorder.table()
    pairs = table[table["quantity"].isin(["update_ratio", "alignment", "covariance", "lost_share"])]
    assert (
        len(pairs)
        and (pairs["status"] == "the stored sum is not skip plus update").all()
        and pairs["value"].isna().all()
    )


def test_a_sink_beside_the_keys_is_no_later_token() -> None:
    import transformers

    config = transformers.GptOssConfig(**GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2)
    found = nl.discover(transformers.GptOssForCausalLM(config).eval())
    assert [stack.name for stack in found.stacks] == ["decoder"] and found.placement == "pre"


@pytest.mark.parametrize("window", [4, 16, 64])
def test_attention_in_windows_looks_to_both_sides(window: int) -> None:
    import transformers

    config = transformers.LongformerConfig(**SIZES | {"max_position_embeddings": 80}, attention_window=window)
    assert [stack.name for stack in nl.discover(transformers.LongformerModel(config).eval()).stacks] == ["encoder"]
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64)
    both = transformers.LEDConfig(
        vocab_size=50, d_model=32, encoder_layers=2, decoder_layers=2, attention_window=window, **heads
    )
    found = nl.discover(transformers.LEDModel(both).eval())
    assert [stack.name for stack in found.stacks] == ["encoder", "decoder"]
