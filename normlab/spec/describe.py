"""A spec in words: equations and constants."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from normlab.activations import ACTIVATIONS
from normlab.inits import Matrix
from normlab.norms import NORMS
from normlab.spec.inner_norms import ALL_HEADS, inner_parameters
from normlab.where import StackName, SubLayerName

if TYPE_CHECKING:
    from normlab.spec.model_spec import ModelSpec


def describe(spec: "ModelSpec") -> str:
    """Return the block's equation and every constant of the model, as text of a few lines."""
    return "\n".join([*_sizes(spec), *_block(spec), *_functions(spec), *_norms(spec), *_recipe(spec)]) + "\n"


def parameter_count(spec: "ModelSpec") -> int:
    """Return the number of learnable entries of the model that ``spec`` describes."""
    return sum(_stack_parameters(spec, stack) for stack in spec.stacks) + (
        0 if spec.tie_embeddings else spec.vocab * spec.width
    )


def _stack_parameters(spec: "ModelSpec", stack: StackName) -> int:
    table = spec.vocab + (spec.context if spec.position == "learned" else 0)
    norms = _norm_parameters(spec, spec.width) * (spec.has_final_norm + spec.has_embed_norm)
    blocks = sum(
        _sublayer_parameters(spec, stack, layer, sublayer)
        for layer in range(1, spec.stacks[stack] + 1)
        for sublayer in spec.sublayers(stack)
    )
    return table * spec.width + norms + blocks


def _sublayer_parameters(spec: "ModelSpec", stack: StackName, layer: int, sublayer: SubLayerName) -> int:
    wiring = spec.wiring(spec.where(stack, layer, sublayer))
    shapes = spec.matrices(sublayer)
    matrices = sum(fan_in * fan_out + spec.bias * fan_out for fan_in, fan_out in shapes.values())
    outer = wiring.norms_stream and not (spec.parallel and sublayer == "attn")
    around = _norm_parameters(spec, spec.width) * (wiring.inner_norm + wiring.output_norm + outer)
    inner_width = shapes["down" if sublayer == "mlp" else "o"][0]
    inside = _norm_parameters(spec, inner_width) if wiring.mid_norm else 0
    if sublayer != "mlp":
        inside += inner_parameters(spec, wiring)
    scale = {"": 0, "scalar": 1, "channel": spec.width}[wiring.learn_branch_scale]
    return matrices + around + inside + scale


def _norm_parameters(spec: "ModelSpec", width: int) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in spec.build_norm(width).parameters())


def _sizes(spec: "ModelSpec") -> Iterator[str]:
    for stack, depth in spec.stacks.items():
        blocks = "1 block" if depth == 1 else f"{depth} blocks"
        joined = " + ".join(spec.sublayers(stack)) if spec.parallel else ", ".join(spec.sublayers(stack))
        yield f"{stack}: {blocks} of {joined}" + (" side by side" if spec.parallel else "")
    shared = "" if spec.key_value_heads == spec.heads else f" ({spec.key_value_heads} of keys and values)"
    heads = "" if spec.attention == "none" else f"{spec.heads} heads{shared} of {spec.features_per_head}, "
    yield (
        f"width {spec.width}, {heads}MLP {spec.hidden_width}, vocabulary {spec.vocab}, context {spec.context}, "
        f"{parameter_count(spec):,} parameters"
    )


def _block(spec: "ModelSpec") -> Iterator[str]:
    for name in dict.fromkeys([spec.placement] if isinstance(spec.placement, str) else spec.placement):
        placement = spec.placement_of(1 if isinstance(spec.placement, str) else spec.placement.index(name) + 1)
        options = "".join(f", {key} = {value}" for key, value in _resolved(placement.options, spec.placement_options))
        yield f"placement {name}: {placement.equation}{options}{_source(placement.source)}"
    equations = {
        f"{stack} block {layer} {sublayer}": spec.wiring(spec.where(stack, layer, sublayer)).equation
        for stack, depth in spec.stacks.items()
        for layer in dict.fromkeys((1, depth))
        for sublayer in spec.sublayers(stack)
    }
    if len(set(equations.values())) == 1:
        equations = {"every sub-layer": next(iter(equations.values()))}
    for place, equation in equations.items():
        yield f"  {place}: {equation}"


def _functions(spec: "ModelSpec") -> Iterator[str]:
    activation = ACTIVATIONS[spec.activation]
    hidden = "(W_up z) ⊙ φ(W_gate z)" if activation.gated else "φ(W_up z)"
    attention = {
        "softmax": f"softmax(q kᵀ/√{spec.features_per_head}) v",
        "uniform": "mean of v over the positions that it may see",
    }
    if spec.attention in attention:
        yield f"attn: F(z) = W_o · concat over heads of {attention[spec.attention]}"
        for what, name in (("queries and keys", spec.qk_norm), ("values", spec.v_norm)):
            if name is not None:
                over = "all heads together" if name.endswith(ALL_HEADS) else "each head"
                yield f"  norm on {what}: {name.removesuffix(ALL_HEADS)}, over {over}"
    yield f"mlp: F(z) = W_down {hidden},  φ(z) = {activation.equation}"
    if spec.dropout:
        yield f"dropout {spec.dropout:g} on every branch, in train mode"


def _norms(spec: "ModelSpec") -> Iterator[str]:
    norm = NORMS[spec.norm]
    options = "".join(f", {name} = {value}" for name, value in _resolved(norm.options, spec.norm_options))
    yield f"norm {spec.norm}: N(x) = {norm.equation},  ε = {spec.norm_eps:g}{options}{_source(norm.source)}"
    yield f"  after the embedding: {_switch(spec.has_embed_norm)}, after the last block: {_switch(spec.has_final_norm)}"


def _recipe(spec: "ModelSpec") -> Iterator[str]:
    recipe = spec.recipe
    options = "".join(f", {name} = {value}" for name, value in _resolved(recipe.options, spec.init_options))
    yield f"init {spec.init}: {recipe.equation}{options}{_source(recipe.source)}"
    for stack, depth in spec.stacks.items():
        for sublayer in spec.sublayers(stack):
            stds = (f"{role} {_std_range(spec, stack, depth, sublayer, role)}" for role in spec.matrices(sublayer))
            yield f"  {stack} {sublayer}: std {', '.join(stds)}"
        scale = spec.embedding_scale(stack)
        times = "" if scale.multiplier == 1 else f", times {scale.multiplier:.4g} at the input"
        yield f"  {stack} embedding: std {scale.std:.4g}{times}; position: {spec.position}"
    head = "the embedding" if spec.tie_embeddings else f"std {_head_std(spec):.4g}"
    yield f"  head: {head}; biases: {'0' if spec.bias else 'none'}"


def _std_range(spec: "ModelSpec", stack: StackName, depth: int, sublayer: SubLayerName, role: str) -> str:
    fan_in, fan_out = spec.matrices(sublayer)[role]
    first, last = (
        spec.recipe.std(
            Matrix(role=role, fan_in=fan_in, fan_out=fan_out, where=spec.where(stack, layer, sublayer)),
            **dict(spec.init_options),
        )
        for layer in (1, depth)
    )
    return f"{first:.4g}" if math.isclose(first, last) else f"{first:.4g} (block 1) to {last:.4g} (block {depth})"


def _head_std(spec: "ModelSpec") -> float:
    head = Matrix(role="head", fan_in=spec.width, fan_out=spec.vocab, where=None)
    return spec.recipe.std(head, **dict(spec.init_options))


def _resolved(defaults: Mapping[str, object], given: tuple[tuple[str, object], ...]) -> list[tuple[str, object]]:
    return list((dict(defaults) | dict(given)).items())


def _switch(on: bool) -> str:
    return "a norm" if on else "none"


def _source(source: str) -> str:
    return f"  [{source}]" if source else ""
