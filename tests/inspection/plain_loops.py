"""Real models as plain loops over their layers in float64: a module gives its weights, and nothing of it is called."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class Plain:
    """What a plain loop computed.

    Attributes:
        streams: the stream after each sub-layer, ``(0, "embed")`` first.
        skips: what each update is added to.
        updates: what is added.
        inputs: what each sub-layer's first matrix sees.
        logits: the attention logits of each block ``[batch, head, query, key]``, -inf where masked.
        weights: the leaf tensors by name; they have a gradient after ``loss.backward()``.
        passed: the largest absolute entry that each module takes and gives, in the order in which they run.
        result: the logits over the vocabulary, or the final states.
    """

    weights: dict[str, Tensor]
    streams: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    skips: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    updates: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    inputs: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    logits: dict[int, Tensor] = field(default_factory=dict)
    passed: dict[tuple[str, str], float] = field(default_factory=dict)
    result: Tensor = field(default_factory=lambda: torch.empty(0))

    def add(self, layer: int, name: str, x: Tensor, taken: Tensor, update: Tensor) -> Tensor:
        """Take note of a residual sum and return it."""
        key = layer, name
        self.inputs[key], self.skips[key], self.updates[key] = taken, x, update
        self.streams[key] = x + update
        return self.streams[key]

    def gives(self, path: str, given: Tensor) -> Tensor:
        """Take note of what a module gives and return it."""
        self.passed[path, "gives"] = float(given.detach().abs().max())
        return given

    def through(self, path: str, taken: Tensor, given: Tensor) -> Tensor:
        """Take note of what a module takes and gives and return that."""
        self.passed[path, "takes"] = float(taken.detach().abs().max())
        return self.gives(path, given)


def _leaves(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().double().requires_grad_() for name, weight in model.named_parameters()}


def _rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def _heads(x: Tensor, width: int) -> Tensor:
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def _rotated(x: Tensor, base: float) -> Tensor:
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * base ** (
        -torch.arange(half, dtype=torch.float64) / half
    )
    cos, sin = angles.cos(), angles.sin()
    one, two = x[..., :half], x[..., half:]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


def _attended(
    plain: Plain, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool
) -> Tensor:
    shared = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(shared, 1).mT * scale
    if causal:
        logits = logits.masked_fill(~torch.ones(logits.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    plain.logits[layer] = logits.detach()
    return (logits.softmax(-1) @ value.repeat_interleave(shared, 1)).transpose(1, 2).flatten(2)


def llama(model: nn.Module, tokens: Tensor) -> Plain:
    """Pre-RMSNorm, rotary positions, grouped keys and values, SwiGLU, tied head."""
    config, w = model.config, _leaves(model)
    plain, eps, width = Plain(w), config.rms_norm_eps, config.hidden_size // config.num_attention_heads
    base = config.rope_parameters["rope_theta"]

    def norm(x: Tensor, at: str) -> Tensor:
        return plain.through(at, x, _rms(x, w[f"{at}.weight"], eps))

    def dense(x: Tensor, at: str) -> Tensor:
        return plain.through(at, x, x @ w[f"{at}.weight"].T)

    x = plain.gives("model.embed_tokens", w["model.embed_tokens.weight"][tokens])
    plain.streams[0, "embed"] = x
    for layer in range(1, config.num_hidden_layers + 1):
        at = f"model.layers.{layer - 1}"
        h = norm(x, f"{at}.input_layernorm")
        q, k, v = (_heads(dense(h, f"{at}.self_attn.{name}_proj"), width) for name in "qkv")
        mixed = _attended(plain, layer, _rotated(q, base), _rotated(k, base), v, width**-0.5, causal=True)
        x = plain.add(layer, "attn", x, h, dense(mixed, f"{at}.self_attn.o_proj"))
        h = norm(x, f"{at}.post_attention_layernorm")
        hidden = F.silu(dense(h, f"{at}.mlp.gate_proj")) * dense(h, f"{at}.mlp.up_proj")
        x = plain.gives(at, plain.add(layer, "mlp", x, h, dense(hidden, f"{at}.mlp.down_proj")))
    plain.result = plain.gives("lm_head", norm(x, "model.norm") @ w["model.embed_tokens.weight"].T)
    return plain


def gemma3(model: nn.Module, tokens: Tensor) -> Plain:
    """Norms with gains 1 + w before and after each sub-layer and on queries and keys; two bases of rotation."""
    config, w = model.config, _leaves(model)
    plain, eps, width = Plain(w), config.rms_norm_eps, config.head_dim

    def norm(x: Tensor, at: str) -> Tensor:
        return plain.through(at, x, _rms(x, 1 + w[f"{at}.weight"], eps))

    def dense(x: Tensor, at: str) -> Tensor:
        return plain.through(at, x, x @ w[f"{at}.weight"].T)

    x = plain.gives("model.embed_tokens", w["model.embed_tokens.weight"][tokens] * config.hidden_size**0.5)
    plain.streams[0, "embed"] = x
    for layer in range(1, config.num_hidden_layers + 1):
        at, base = f"model.layers.{layer - 1}", config.rope_parameters[config.layer_types[layer - 1]]["rope_theta"]
        h = norm(x, f"{at}.input_layernorm")
        q, k, v = (_heads(dense(h, f"{at}.self_attn.{name}_proj"), width) for name in "qkv")
        q, k = (norm(part, f"{at}.self_attn.{name}_norm") for part, name in ((q, "q"), (k, "k")))
        q, k = _rotated(q, base), _rotated(k, base)
        mixed = _attended(plain, layer, q, k, v, config.query_pre_attn_scalar**-0.5, causal=True)
        update = norm(dense(mixed, f"{at}.self_attn.o_proj"), f"{at}.post_attention_layernorm")
        x = plain.add(layer, "attn", x, h, update)
        h = norm(x, f"{at}.pre_feedforward_layernorm")
        hidden = F.gelu(dense(h, f"{at}.mlp.gate_proj"), approximate="tanh") * dense(h, f"{at}.mlp.up_proj")
        update = norm(dense(hidden, f"{at}.mlp.down_proj"), f"{at}.post_feedforward_layernorm")
        x = plain.gives(at, plain.add(layer, "mlp", x, h, update))
    plain.result = plain.gives("lm_head", norm(x, "model.norm") @ w["model.embed_tokens.weight"].T)
    return plain


def bert(model: nn.Module, tokens: Tensor) -> Plain:
    """Post-LN: the norm stands on the sum."""
    config, w = model.config, _leaves(model)
    plain, eps, width = Plain(w), config.layer_norm_eps, config.hidden_size // config.num_attention_heads

    def norm(x: Tensor, at: str) -> Tensor:
        return plain.through(at, x, F.layer_norm(x, x.shape[-1:], w[f"{at}.weight"], w[f"{at}.bias"], eps))

    def dense(x: Tensor, at: str) -> Tensor:
        return plain.through(at, x, x @ w[f"{at}.weight"].T + w[f"{at}.bias"])

    positions = w["embeddings.position_embeddings.weight"][: tokens.shape[1]]
    x = w["embeddings.word_embeddings.weight"][tokens] + positions + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    plain.streams[0, "embed"] = x
    for layer in range(1, config.num_hidden_layers + 1):
        at = f"encoder.layer.{layer - 1}."
        q, k, v = (_heads(dense(x, f"{at}attention.self.{name}"), width) for name in ("query", "key", "value"))
        mixed = _attended(plain, layer, q, k, v, width**-0.5, causal=False)
        total = plain.add(layer, "attn", x, x, dense(mixed, at + "attention.output.dense"))
        x = plain.streams[layer, "attn"] = norm(total, at + "attention.output.LayerNorm")
        hidden = F.gelu(dense(x, at + "intermediate.dense"))
        total = plain.add(layer, "mlp", x, x, dense(hidden, at + "output.dense"))
        x = plain.streams[layer, "mlp"] = norm(total, at + "output.LayerNorm")
    plain.result = x
    return plain
