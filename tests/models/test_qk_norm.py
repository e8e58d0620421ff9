"""Norms inside attention, against the equation written out by hand, and what they make impossible."""

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from normlab import ModelSpec, build
from normlab.errors import NormlabError
from normlab.models import Attention
from normlab.norms import NORMS
from normlab.spec.describe import parameter_count

WIDTH, HEADS, FEATURES = 32, 4, 8


def _attention(seed: int = 0, **fields: Any) -> Attention:
    """Build the attention of a model in float64 whose gains are all different numbers."""
    spec = ModelSpec(**(dict(depth=1, width=WIDTH, heads=HEADS) | fields))
    mixer = build(spec, seed=seed, dtype=torch.float64).stacks["decoder"].blocks[0].sublayers["attn"].mixer
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            if name.endswith("gain"):
                parameter.normal_(generator=generator)
    return mixer


def _tokens(scale: float = 1.0) -> Tensor:
    return scale * torch.randn(2, 5, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _observed(mixer: Attention, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values as the core gets them."""
    seen: list[tuple[Tensor, ...]] = []
    handle = mixer.core.register_forward_pre_hook(lambda module, inputs: seen.append(inputs))
    mixer(z)
    handle.remove()
    return seen[0]


def _by_hand(name: str, x: Tensor, gain: Tensor) -> Tensor:
    if name == "layernorm":
        x = x - x.mean(-1, keepdim=True)
    if name == "scalenorm":
        return gain * x / x.norm(dim=-1, keepdim=True)
    return gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "scalenorm"])
def test_each_head_is_normed_on_its_own(name: str, kv_heads: int) -> None:
    mixer, z = _attention(qk_norm=name, v_norm=name, kv_heads=kv_heads), _tokens()
    for role, seen in zip("qkv", _observed(mixer, z), strict=True):
        heads = getattr(mixer, role)(z).unflatten(-1, (-1, FEATURES)).transpose(1, 2)
        torch.testing.assert_close(seen, _by_hand(name, heads, getattr(mixer, f"{role}_norm").norm.gain))


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "scalenorm"])
def test_all_heads_are_normed_together(name: str) -> None:
    mixer, z = _attention(qk_norm=f"{name}-all", v_norm=f"{name}-all", kv_heads=2), _tokens()
    for role, seen in zip("qkv", _observed(mixer, z), strict=True):
        joined = _by_hand(name, getattr(mixer, role)(z), getattr(mixer, f"{role}_norm").norm.gain)
        torch.testing.assert_close(seen, joined.unflatten(-1, (-1, FEATURES)).transpose(1, 2))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
def test_no_logit_exceeds_the_product_of_the_gains(name: str, scale: float) -> None:
    mixer = _attention(qk_norm=name, position="rope")
    query, key, _ = _observed(mixer, _tokens(scale))
    logits = query @ key.transpose(-1, -2) / math.sqrt(FEATURES)
    bound = math.sqrt(FEATURES) * mixer.q_norm.norm.gain.abs().max() * mixer.k_norm.norm.gain.abs().max()
    assert logits.abs().max() <= bound


def test_the_bound_is_reached_where_query_and_key_are_parallel() -> None:
    mixer = _attention(qk_norm="rmsnorm", norm_eps=0.0)
    with torch.no_grad():
        mixer.k.weight.copy_(mixer.q.weight)
        mixer.q_norm.norm.gain.fill_(3.0)
        mixer.k_norm.norm.gain.fill_(0.5)
    query, key, _ = _observed(mixer, _tokens())
    own = (query * key).sum(-1) / math.sqrt(FEATURES)
    torch.testing.assert_close(own, torch.full_like(own, math.sqrt(FEATURES) * 3.0 * 0.5))


def test_unit_vectors_times_a_learned_number_start_as_rmsnorm() -> None:
    results = [
        build(ModelSpec(depth=1, width=WIDTH, qk_norm=name, norm_eps=0.0), dtype=torch.float64)(torch.arange(6)[None])
        for name in ("scalenorm", "rmsnorm")
    ]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ("role", "fields"),
    [("q", {"qk_norm": "rmsnorm"}), ("k", {"qk_norm": "layernorm-all"}), ("v", {"v_norm": "rmsnorm"})],
)
def test_a_normed_matrix_has_no_scale(role: str, fields: dict[str, str]) -> None:
    mixer, z = _attention(norm_eps=0.0, **fields), _tokens()
    weight = getattr(mixer, role).weight
    before = mixer(z)
    (gradient,) = torch.autograd.grad(before.square().sum(), weight)
    torch.testing.assert_close((gradient * weight).sum(), torch.zeros((), dtype=torch.float64), atol=1e-10, rtol=0)
    with torch.no_grad():
        weight.mul_(7)
    torch.testing.assert_close(mixer(z), before)


def test_uniform_attention_norms_its_values() -> None:
    mixer, z = _attention(attention="uniform", v_norm="rmsnorm"), _tokens()
    value = _by_hand("rmsnorm", mixer.v(z).unflatten(-1, (-1, FEATURES)), mixer.v_norm.norm.gain)
    mean = value.cumsum(1) / torch.arange(1, 6)[:, None, None]
    torch.testing.assert_close(mixer(z), mixer.o(mean.flatten(2)))
    assert mixer.q_norm is None


def test_a_placement_norms_queries_keys_and_values_with_the_models_norm() -> None:
    placed = _attention(placement="hybridnorm", norm="rmsnorm")
    assert {type(placed.q_norm.norm), type(placed.v_norm.norm)} == {NORMS["rmsnorm"].build}
    other = _attention(placement="hybridnorm", norm="rmsnorm", qk_norm="layernorm-all")
    assert other.q_norm.norm.gain.shape == (WIDTH,)
    assert other.v_norm.norm.gain.shape == (FEATURES,)
    pooled = _attention(placement="hybridnorm", norm="batchnorm")
    assert pooled.q_norm.norm.gain.shape == (WIDTH,)


def test_options_of_the_models_norm_hold_for_its_use_inside_attention() -> None:
    mixer = _attention(norm="rmsnorm", norm_options=(("cast", "before"),), qk_norm="rmsnorm", v_norm="layernorm")
    assert (mixer.q_norm.norm.cast, mixer.v_norm.norm.cast) == ("before", "after")
    assert mixer.v_norm.norm.bias is None


@pytest.mark.parametrize(
    "fields",
    [
        {"qk_norm": "rmsnorm", "v_norm": "layernorm-all", "kv_heads": 2},
        {"attention": "uniform", "v_norm": "scalenorm"},
        {"placement": "hybridnorm", "norm": "rmsnorm", "kv_heads": 1},
    ],
)
def test_described_parameters_are_the_models(fields: dict[str, Any]) -> None:
    spec = ModelSpec(depth=2, width=WIDTH, **fields)
    assert parameter_count(spec) == sum(parameter.numel() for parameter in build(spec).parameters())


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"qk_norm": "rmsnrom"}, "unknown norm 'rmsnrom'"),
        ({"v_norm": "l2"}, "did you mean 'l2norm'?"),
        ({"qk_norm": "batchnorm"}, "norm 'batchnorm' is not per-token"),
        ({"v_norm": "groupnorm", "width": 12}, "cannot split 3 features into 4 groups"),
        ({"qk_norm": "rmsnorm", "attention": "uniform"}, "attention 'uniform' does not have"),
        ({"v_norm": "rmsnorm", "attention": "none"}, "attention 'none' does not have"),
    ],
)
def test_what_cannot_stand_inside_attention(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NormlabError, match=re.escape(sentence)):
        ModelSpec(**({"depth": 1, "width": WIDTH} | fields))
