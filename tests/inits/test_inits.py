"""Each recipe's standard deviations against the formulas, on the weights that a model starts with."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import normlab as nl
from normlab.inits import INITS

D, FF, V, L = 64, 256, 256, 8


def model(init: str, **fields: Any) -> nn.Module:
    return nl.build(nl.ModelSpec(**{"depth": L, "width": D, "init": init, "bias": True} | fields), seed=2)


def matrices(built: nn.Module, stack: str = "decoder") -> Iterator[tuple[str, int, str, torch.Tensor]]:
    for number, block in enumerate(built.stacks[stack].blocks, start=1):
        for name, sublayer in block.sublayers.items():
            for role, module in sublayer.mixer.named_children():
                if isinstance(module, nn.Linear):
                    yield role, number, name, module.weight.detach()


def assert_std(weight: torch.Tensor, expected: float) -> None:
    # The sample standard deviation of N numbers has a relative standard error of 1/√(2N).
    if expected == 0:
        assert (weight == 0).all()
    else:
        error = 4.5 / math.sqrt(2 * weight.numel())
        assert float((weight.detach().double() ** 2).mean().sqrt()) == pytest.approx(expected, rel=error)


def xavier(role: str) -> float:
    return math.sqrt(2 / (D + (FF if role in ("up", "gate", "down") else D)))


SCALED = ("v", "o", "up", "down")
EXPECTED: dict[str, Any] = {
    "xavier": lambda role, layer: xavier(role),
    "gpt2": lambda role, layer: 0.02,
    "gpt2-scaled": lambda role, layer: 0.02 / math.sqrt(2 * L if role in ("o", "down") else 1),
    "fan-in": lambda role, layer: (FF if role == "down" else D) ** -0.5,
    "small-init": lambda role, layer: math.sqrt(2 / (5 * D)),
    "deepnorm": lambda role, layer: xavier(role) * ((8 * L) ** -0.25 if role in SCALED else 1),
    "t-fixup": lambda role, layer: xavier(role) * (0.67 * L**-0.25 if role in SCALED else 1),
    "fixup": lambda role, layer: (
        0.0 if role in ("o", "down") else xavier(role) * (2 * L) ** (-1 / 2 if role == "up" else -1 / 6)
    ),
    "magneto": lambda role, layer: xavier(role) * (math.sqrt(math.log(2 * L)) if role in SCALED else 1),
    "orthogonal": lambda role, layer: (FF if role in ("up", "down") else D) ** -0.5,
}


def test_every_recipe_is_tested() -> None:
    assert set(EXPECTED) == set(INITS)


@pytest.mark.parametrize("init", EXPECTED)
def test_every_matrix_has_the_recipes_scale(init: str) -> None:
    built = model(init)
    found = list(matrices(built))
    assert [role for role, *_ in found[:6]] == ["q", "k", "v", "o", "up", "down"] and len(found) == 6 * L
    for role, layer, _, weight in found:
        assert_std(weight, EXPECTED[init](role, layer))
    biases = [p for name, p in built.named_parameters() if name.endswith(".bias") and "mixer" in name]
    assert len(biases) == 6 * L and all((bias == 0).all() for bias in biases)
    # Different matrices hold different numbers.
    assert len({float(weight.flatten()[0]) for *_, weight in found if weight.any()}) > 2 * L


@pytest.mark.parametrize(
    "init, tied, std, multiplier",
    [
        ("xavier", False, 1.0, 1.0),
        ("xavier", True, D**-0.5, D**0.5),
        ("gpt2", False, 0.02, 1.0),
        ("gpt2", True, 0.02, 1.0),
        ("gpt2-scaled", True, 0.02, 1.0),
        ("deepnorm", True, D**-0.5, D**0.5),
        ("t-fixup", False, D**-0.5 * (9 * L) ** -0.25, D**0.5),
    ],
)
def test_embedding_and_head(init: str, tied: bool, std: float, multiplier: float) -> None:
    built = model(init, tie_embeddings=tied, position="learned")
    embedding = built.stacks["decoder"].embedding
    assert_std(embedding.token, std)
    assert_std(embedding.position, std)
    assert embedding.multiplier == pytest.approx(multiplier)
    assert (built.head.weight is embedding.token) is tied
    if not tied:
        assert_std(built.head.weight, 0.02 if init.startswith("gpt2") else math.sqrt(2 / (D + V)))


def test_embed_std_replaces_the_recipes() -> None:
    assert_std(model("xavier", embed_std=0.3).stacks["decoder"].embedding.token, 0.3)


def test_fan_in_has_a_gain_for_each_role() -> None:
    gains = {"q": 0.5, "k": 2.0, "v": 3.0, "o": 0.1, "up": 1.5, "gate": 0.7, "down": 0.2, "head": 4.0}
    built = model("fan-in", init_options=tuple(sorted(gains.items())), activation="swiglu")
    for role, _, _, weight in matrices(built):
        assert_std(weight, gains[role] * (FF if role == "down" else D) ** -0.5)
    assert_std(built.head.weight, gains["head"] * D**-0.5)


@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_orthogonal_matrices_have_equal_singular_values(gain: float) -> None:
    built = model("orthogonal", init_options=(("gain", gain),), depth=1)
    for *_, weight in matrices(built):
        assert torch.linalg.svdvals(weight.double()).sub(gain).abs().max() < 1e-5


def test_deepnorms_beta_sits_on_each_factor() -> None:
    # The product of v and o is scaled by β²: merged into one matrix it would be another model.
    xavier_product, product = (
        torch.stack([weight for role, *_, weight in matrices(model(init)) if role in ("v", "o")]).double()
        for init in ("xavier", "deepnorm")
    )
    assert torch.allclose(product, xavier_product * (8 * L) ** -0.25, rtol=1e-6)


@pytest.mark.parametrize(
    "init, stack, sublayer, factor",
    [
        ("deepnorm", "encoder", "attn", 0.87 * (4**4 * L) ** (-1 / 16)),
        ("deepnorm", "decoder", "attn", (12 * L) ** -0.25),
        ("deepnorm", "decoder", "cross", (12 * L) ** -0.25),
        ("t-fixup", "encoder", "mlp", 0.67 * 4**-0.25),
        ("t-fixup", "decoder", "mlp", (9 * L) ** -0.25),
        ("magneto", "encoder", "attn", math.sqrt(math.log(3 * L) * math.log(2 * 4) / 3)),
        ("magneto", "decoder", "mlp", math.sqrt(math.log(3 * L))),
        ("magneto", "decoder", "cross", 1.0),
    ],
)
def test_constants_of_an_encoder_decoder(init: str, stack: str, sublayer: str, factor: float) -> None:
    built = model(init, kind="encoder-decoder", encoder_depth=4)
    scaled = [weight for role, _, name, weight in matrices(built, stack) if role in SCALED and name == sublayer]
    assert_std(torch.stack(scaled[0 : 2 * L : 2]), factor * xavier("v" if sublayer != "mlp" else "up"))


def test_gpt2_scaled_counts_the_sublayers_of_its_stack() -> None:
    built = model("gpt2-scaled", kind="encoder-decoder", encoder_depth=2)
    down = torch.stack([weight for role, *_, weight in matrices(built) if role == "down"])
    assert_std(down, 0.02 / math.sqrt(3 * L))
