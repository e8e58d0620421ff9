import pytest

from normlab.placements import PLACEMENTS
from normlab.where import Where


def where(layer: int, sublayer: str = "mlp", **fields: int | str) -> Where:
    defaults = {
        "stack": "decoder", "depth": 32, "index": 2 * layer, "sublayers": 2, "encoder_depth": 0, "decoder_depth": 32,
        "width": 64,
    }  # fmt: skip
    return Where(**{**defaults, "layer": layer, "sublayer": sublayer, **fields})


@pytest.mark.parametrize(
    "placement, layer, equation",
    [
        ("post", 1, "x ← N(x + F(x))"),
        ("pre", 1, "x ← x + F(N(x))"),
        ("peri", 1, "x ← x + N(F(N(x)))"),
        ("reordered", 1, "x ← x + N(F(x))"),
        ("res-post-norm", 1, "x ← x + 0·N(F(x))"),
        ("periodic", 1, "x ← x + F(x)"),
        ("periodic", 2, "x ← N(x + F(x))"),
        ("sub-ln", 1, "x ← x + F(N(x)),  N before F's last matrix"),
        ("deepnorm", 1, "x ← N(2.828·x + F(x))"),
        ("b2t", 1, "x ← N(x + x_block + F(x))"),
        ("mix-ln", 8, "x ← N(x + F(x))"),
        ("mix-ln", 9, "x ← x + F(N(x))"),
        ("hybridnorm", 1, "x ← N(x) + F(N(x))"),
        ("residual", 1, "x ← N(x + F(x)),  y ← y + F(x)"),
        ("lns", 16, "x ← x + F(0.25·N(x))"),
        ("rezero", 1, "x ← x + b·F(x),  b a learnable number from 0"),
        ("layerscale", 1, "x ← x + b·F(N(x)),  b a learnable number a feature from 1e-06"),
        ("completep", 1, "x ← x + 0.03125·F(N(x))"),
        ("ngpt", 1, "x ← N((1 − b)·x + b·N(F(x))),  b a learnable number a feature from 0.05"),
        ("none", 1, "x ← x + F(x)"),
    ],
)
def test_a_wiring_writes_its_equation(placement: str, layer: int, equation: str) -> None:
    assert PLACEMENTS[placement].at(where(layer)).equation == equation


def test_attention_of_hybridnorm_norms_queries_keys_and_values() -> None:
    assert PLACEMENTS["hybridnorm"].at(where(1, "attn")).equation == "x ← x + F(x),  N on q, k and v"


@pytest.mark.parametrize("depth, initial", [(18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6)])
def test_layerscale_starts_by_depth(depth: int, initial: float) -> None:
    assert PLACEMENTS["layerscale"].at(where(1, depth=depth)).branch_scale == initial


@pytest.mark.parametrize("stack, alpha", [("encoder", 0.81 * (12**4 * 6) ** (1 / 16)), ("decoder", 18**0.25)])
def test_deepnorm_of_an_encoder_decoder(stack: str, alpha: float) -> None:
    both = where(1, stack=stack, depth=12 if stack == "encoder" else 6, encoder_depth=12, decoder_depth=6)
    assert PLACEMENTS["deepnorm"].at(both).skip_scale == pytest.approx(alpha, rel=1e-12)
