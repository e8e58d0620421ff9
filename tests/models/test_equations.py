"""The forward pass against the equations written out by hand."""

from collections.abc import Callable
from itertools import count, product
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from normlab.placements import PLACEMENTS

PLACED = ("post", "pre", "peri", "none")
NORMED = ("layernorm", "rmsnorm", "identity")


def assert_equal(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], by_hand: ModuleType) -> None:
    expected = by_hand.logits(model, *batch)
    assert (model(*batch) - expected).abs().max() <= 1e-12 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("placement", PLACED)
@pytest.mark.parametrize("norm", NORMED)
@pytest.mark.parametrize("attention", ["softmax", "uniform", "none"])
def test_the_first_combinations(
    placement: str, norm: str, attention: str, make: Callable[..., nn.Module], batch: Any, by_hand: ModuleType
) -> None:
    inits = ("xavier", "gpt2", "gpt2-scaled")
    switches = product(["relu", "gelu"], [True, False], ["none", "learned"], [True, False])
    for number, (activation, final, position, tied) in zip(count(), switches, strict=False):
        model = make(
            placement=placement, norm=norm, attention=attention, activation=activation, final_norm=final,
            position=position, tie_embeddings=tied, bias=number % 2 == 0, init=inits[number % 3],
        )  # fmt: skip
        assert_equal(model, batch, by_hand)


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_placement_in_every_kind(
    placement: str, kind: str, make: Callable[..., nn.Module], batch: Any, by_hand: ModuleType
) -> None:
    depths = {"depth": 3, "encoder_depth": 2} if kind == "encoder-decoder" else {"depth": 4}
    for norm, activation in (("layernorm", "gelu"), ("rmsnorm", "swiglu")):
        assert_equal(make(placement=placement, kind=kind, norm=norm, activation=activation, **depths), batch, by_hand)


@pytest.mark.parametrize(
    "placement, options",
    [
        ("res-post-norm", {"every": 2}),
        ("periodic", {"every": 3}),
        ("mix-ln", {"alpha": 0.5}),
        ("hybridnorm", {"star": True}),
        ("residual", {"scale": 0.1}),
        ("skipinit", {"initial": 0.7}),
        ("layerscale", {"initial": 0.4}),
        ("completep", {"alpha": 0.5, "base_depth": 2}),
        ("ngpt", {"step": 0.2}),
    ],
)
def test_options_of_placements(
    placement: str, options: dict[str, float], make: Callable[..., nn.Module], batch: Any, by_hand: ModuleType
) -> None:
    assert_equal(make(placement=placement, placement_options=tuple(sorted(options.items())), depth=4), batch, by_hand)
    assert placement in PLACEMENTS and options.keys() <= PLACEMENTS[placement].options.keys()


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "tanh", "swiglu", "geglu"])
@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_activations_and_positions(
    activation: str, position: str, kind: str, make: Callable[..., nn.Module], batch: Any, by_hand: ModuleType
) -> None:
    assert_equal(
        make(activation=activation, position=position, kind=kind, width=7, heads=1, head_width=4), batch, by_hand
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_heads": 1, "heads": 4},
        {"kv_heads": 2, "heads": 4, "head_width": 6, "position": "rope"},
        {"embed_norm": True, "placement": "peri", "final_norm": True},
        {"placement": ("post", "pre")},
        {"placement": ("residual", "residual")},
        {"init": "t-fixup", "placement": "none"},
        {"kind": "encoder-decoder", "attention": "uniform"},
        {"placement": "hybridnorm", "attention": "uniform"},
        {"placement": "residual", "final_norm": False},
        {"qk_norm": "rmsnorm"},
        {"placement": "ngpt", "norm": "l2norm", "qk_norm": "l2norm"},
        *({"parallel": True, "placement": placement} for placement in ("post", "pre", "peri")),
    ],
    ids=str,
)
def test_other_switches(
    fields: dict[str, Any], make: Callable[..., nn.Module], batch: Any, by_hand: ModuleType
) -> None:
    assert_equal(make(**fields), batch, by_hand)


def test_the_references_placements_differ_from_one_another(
    make: Callable[..., nn.Module], batch: Any, by_hand: ModuleType
) -> None:
    # A reference in which two placements gave the same numbers could not tell them apart.
    found = {round(float(by_hand.logits(make(placement=name, depth=4), *batch).sum()), 9) for name in PLACEMENTS}
    assert len(found) >= len(PLACEMENTS) - 1  # rezero and skipinit share an equation


def test_a_branch_without_a_skip(make: Callable[..., nn.Module], batch: Any) -> None:
    from normlab.placements import Placement, Wiring, register_placement

    register_placement(
        Placement(name="plain", equation="x ← F(x)", source="", wiring=Wiring(skip="none"), final_norm=False),
        replace=True,
    )
    try:
        model = make(placement="plain", depth=1, attention="none", activation="relu")
        stack = model.stacks["decoder"]
        x, mlp = stack.embedding(batch[0]), stack.blocks[0].sublayers["mlp"].mixer
        assert torch.equal(model.features(*batch), mlp(x))
    finally:
        del PLACEMENTS._entries["plain"]
