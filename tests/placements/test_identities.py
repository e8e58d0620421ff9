"""Exact identities between placements: the same weights, different names, the same numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normlab.inits import INITS, Matrix
from normlab.placements import PLACEMENTS, Wiring
from normlab.where import Where

Make = Callable[..., nn.Module]


def out(model: nn.Module, stream: Tensor) -> Tensor:
    """What the head would see for ``stream`` in place of embedded tokens."""
    return next(iter(model.stacks.values())).run(stream, None)


def with_weights_of(model: nn.Module, other: nn.Module) -> nn.Module:
    """``model`` with every parameter that ``other`` also has."""
    known = model.state_dict().keys()
    model.load_state_dict({name: value for name, value in other.state_dict().items() if name in known}, strict=False)
    return model


def where(**fields: Any) -> Where:
    defaults = {
        "stack": "decoder", "layer": 1, "depth": 4, "sublayer": "mlp", "index": 2, "sublayers": 2,
        "encoder_depth": 0, "decoder_depth": 4, "width": 8,
    }  # fmt: skip
    return Where(**defaults | fields)


def test_deepnorm_without_its_constants_is_post() -> None:
    assert replace(PLACEMENTS["deepnorm"].at(where()), skip_scale=1.0) == PLACEMENTS["post"].at(where())
    matrix = Matrix(role="v", fan_in=8, fan_out=8, where=where())
    assert INITS["deepnorm"].std(matrix) == pytest.approx(INITS["xavier"].std(matrix) * 32**-0.25)


@pytest.mark.parametrize(
    "one, other",
    [
        ({"placement": "skipinit", "placement_options": (("initial", 1.0),)}, {"placement": "none"}),
        ({"placement": "lns", "depth": 1}, {"placement": "pre", "depth": 1}),
        ({"placement": "completep", "placement_options": (("alpha", 0.0),)}, {"placement": "pre"}),
        (
            {"placement": "completep", "depth": 4, "placement_options": (("base_depth", 4),)},
            {"placement": "pre", "depth": 4},
        ),
        ({"placement": "mix-ln", "placement_options": (("alpha", 0.0),)}, {"placement": "pre"}),
        ({"placement": "mix-ln", "placement_options": (("alpha", 1.0),)}, {"placement": "post", "final_norm": True}),
        ({"placement": "periodic", "placement_options": (("every", 4),)}, {"placement": "none"}),
        ({"placement": ("lns",) * 3}, {"placement": "lns"}),
        *(
            ({"placement": placement, "norm": "identity", "final_norm": False}, {"placement": "none"})
            for placement in ("pre", "post", "peri", "reordered", "sub-ln", "hybridnorm")
        ),
    ],
    ids=str,
)
def test_two_names_for_one_model(one: dict[str, Any], other: dict[str, Any], make: Make, stream: Tensor) -> None:
    assert torch.equal(out(make(**one), stream), out(with_weights_of(make(**other), make(**one)), stream))


def test_periodic_with_a_norm_after_every_block_is_not_peri(make: Make, stream: Tensor) -> None:
    periodic = make(placement="periodic", placement_options=(("every", 1),))
    assert not torch.allclose(out(periodic, stream), out(make(placement="peri", final_norm=False), stream))


def test_res_post_norm_with_gain_1_is_reordered(make: Make, stream: Tensor) -> None:
    reordered = make(placement="reordered")
    assert torch.equal(out(with_weights_of(make(placement="res-post-norm"), reordered), stream), out(reordered, stream))


PERI = {"norm": "rmsnorm", "activation": "relu"}


@pytest.mark.parametrize(
    "fields",
    [{"attention": "none"}, {"qk_norm": "rmsnorm", "v_norm": "rmsnorm"}, {"attention": "uniform", "v_norm": "rmsnorm"}],
    ids=str,
)
def test_peri_is_reordered_where_branches_forget_each_tokens_size(
    fields: dict[str, Any], make: Make, stream: Tensor
) -> None:
    peri = make(placement="peri", **PERI, **fields)
    reordered = with_weights_of(make(placement="reordered", **PERI, **fields), peri)
    assert (out(peri, stream) - out(reordered, stream)).abs().max() < 1e-12


def test_norms_on_queries_and_keys_alone_do_not_make_peri_reordered(make: Make, stream: Tensor) -> None:
    # Values of large tokens weigh more in the reordered block, unless all tokens have one size.
    fields = PERI | {"qk_norm": "rmsnorm", "depth": 1}
    peri = make(placement="peri", **fields)
    reordered = with_weights_of(make(placement="reordered", **fields), peri)
    assert (out(peri, stream) - out(reordered, stream)).abs().max() > 0.01
    equal = stream / stream.square().mean(-1, keepdim=True).sqrt()
    first = [model.stacks["decoder"].blocks[0].sublayers["attn"] for model in (peri, reordered)]
    assert (first[0](equal, equal) - first[1](equal, equal)).abs().max() < 1e-12


@pytest.mark.parametrize("placement", ["rezero", "skipinit", "res-post-norm"])
def test_branches_that_start_at_zero_have_an_exact_identity_as_jacobian(placement: str, make: Make) -> None:
    model = make(placement=placement, final_norm=False)
    x = torch.randn(1, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(out(model, x), x)
    jacobian = torch.autograd.functional.jacobian(lambda x: out(model, x), x)
    assert torch.equal(jacobian.reshape(24, 24), torch.eye(24, dtype=torch.float64))


def test_rezero_first_learns_its_scales_only(make: Make) -> None:
    model = make(placement="rezero", depth=1)
    tokens = torch.tensor([[1, 2, 3]])
    model.loss(tokens, tokens).backward()
    for name, parameter in model.named_parameters():
        if "mixer" in name:
            assert not parameter.grad.any()
    block = model.stacks["decoder"].blocks[0]
    x = model.stacks["decoder"].embedding(tokens).detach().requires_grad_()
    (g,) = torch.autograd.grad(model.criterion(model.head(x), tokens), x)
    for name in ("attn", "mlp"):
        branch = block.sublayers[name].mixer(x)
        assert torch.isclose(block.sublayers[name].branch_scale.scale.grad, (g * branch).sum(), rtol=1e-12)


def test_residuals_first_stream_is_post_and_its_second_the_sum_of_all_updates(make: Make, stream: Tensor) -> None:
    model, kappa = make(placement="residual", placement_options=(("scale", 0.1),), final_norm=False), 0.1
    updates: list[Tensor] = []
    for block in model.stacks["decoder"].blocks:
        for sublayer in block.sublayers.values():
            sublayer.mixer.register_forward_hook(lambda *ran: updates.append(ran[2]))
    found = out(model, stream)
    first = out(with_weights_of(make(placement="post"), model), stream)
    assert torch.allclose(found, first + kappa * (stream + sum(updates)), rtol=1e-12)


def test_ngpt_with_a_whole_step_forgets_the_stream(make: Make, stream: Tensor) -> None:
    model = make(placement="ngpt", placement_options=(("step", 1.0),), depth=1, attention="none")
    mlp = model.stacks["decoder"].blocks[0].sublayers["mlp"]
    assert torch.equal(out(model, stream), mlp.outer_norm(mlp.output_norm(mlp.mixer(stream))))


def test_ngpt_turns_three_degrees_a_sublayer(make: Make) -> None:
    # Independent branches: cos(h_0, h_S) = (0.95/√(0.95² + 0.05²))^S.
    depth = 12
    model = make(placement="ngpt", norm="rmsnorm", depth=depth, width=256, mlp_width=256, attention="none", context=64)
    x = torch.randn(1, 64, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = model.stacks["decoder"].blocks[0].sublayers["mlp"].outer_norm(x)
        cosine = torch.cosine_similarity(x, out(model, x), dim=-1).mean()
    assert float(cosine) == pytest.approx((0.95 / (0.95**2 + 0.05**2) ** 0.5) ** depth, abs=2e-3)


def test_the_reordered_update_has_rms_1_whatever_the_weights(make: Make, stream: Tensor) -> None:
    model = make(placement="reordered", norm="rmsnorm", init="gpt2")
    seen: list[Tensor] = []
    for block in model.stacks["decoder"].blocks:
        block.sublayers["mlp"].add.register_forward_hook(lambda *ran: seen.append(ran[1][1]))
    out(model, stream)
    assert len(seen) == 3
    assert all((update.square().mean(-1) - 1).abs().max() < 1e-12 for update in seen)


#: Which matrices can be rescaled without any effect on the output, by placement.
FREE: dict[str, set[str]] = {
    "post": set(),
    "pre": set(),
    "none": set(),
    "deepnorm": set(),
    "lns": set(),
    "peri": {"o", "down", "v", "up"},
    "reordered": {"o", "down", "v", "up"},
    "ngpt": {"o", "down", "v", "up"},
    "sub-ln": {"v", "up"},
    "hybridnorm": {"q", "k", "v"},
}


@pytest.mark.parametrize("role", ["q", "k", "v", "o", "up", "down"])
@pytest.mark.parametrize("qk_norm", [None, "rmsnorm"])
@pytest.mark.parametrize("placement", FREE)
def test_which_weights_have_no_scale(placement: str, role: str, qk_norm: str | None, make: Make) -> None:
    """Where W → kW leaves the output, the gradient is divided by k and orthogonal to W."""
    model = make(placement=placement, norm="rmsnorm", activation="relu", qk_norm=qk_norm)
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    sublayer = "mlp" if role in ("up", "down") else "attn"
    weight = getattr(model.stacks["decoder"].blocks[1].sublayers[sublayer].mixer, role).weight

    def run(k: float) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            weight.mul_(k)
        (gradient,) = torch.autograd.grad(model.loss(tokens, tokens), weight)
        logits = model(tokens).detach()
        with torch.no_grad():
            weight.div_(k)
        return logits, gradient

    (logits, gradient), (scaled_logits, scaled_gradient) = run(1.0), run(4.0)
    if role in FREE[placement] or (qk_norm and role in ("q", "k")):
        assert (logits - scaled_logits).abs().max() < 1e-11
        assert (gradient - 4 * scaled_gradient).abs().max() < 1e-11 * gradient.abs().max()
        inner = (weight.detach() * gradient).sum().abs()
        assert inner < 1e-12 * weight.detach().norm() * gradient.norm()
    else:
        assert (logits - scaled_logits).abs().max() > 1e-4


def test_a_wiring_refuses_switches_that_exclude_each_other() -> None:
    from normlab.errors import SpecError

    with pytest.raises(SpecError, match="two streams and an outer norm: the first of two streams is normed already"):
        Wiring(second_stream=1.0, outer_norm=True)
    with pytest.raises(SpecError, match="skips from the normed stream without an inner norm: switch inner_norm on"):
        Wiring(skip="normed")
    with pytest.raises(SpecError, match="interpolates with skip_scale 1 and branch_scale 0.5: give two numbers that"):
        Wiring(interpolate=True, branch_scale=0.5)
