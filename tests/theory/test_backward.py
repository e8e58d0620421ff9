import numpy as np
import pytest

from normlab.spec import ModelSpec
from normlab.theory import predict
from normlab.theory.backward import Gradient, backward, step_back
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import averages, of_random
from normlab.theory.head import head

PAIRS = of_random(1, 12, 10**9)
FIXED = {"depth": 5, "width": 64, "attention": "none", "activation": "relu", "norm": "rmsnorm", "norm_eps": 0.0}


def end_to_end(walked: Forward) -> dict[int, float]:
    """Return APJN(ℓ → L) by ℓ, of a gradient that walks by itself."""
    state, found = Gradient(walked.geometry.own + 0 * walked.out), {}
    for step in reversed(walked.steps):
        state, _ = step_back(step, state, parameters=False)
        if step.where.starts_block:
            found[step.where.layer - 1] = float(walked.geometry.mean_square(state.x))
    return found


def growth(finite: bool = False, **fields: object) -> dict[int, float]:
    return end_to_end(forward(ModelSpec(**(FIXED | fields)), PAIRS, finite=finite))


def test_pre_telescopes() -> None:
    """APJN(ℓ → L) = q_L/q_ℓ for a ReLU, whose gain is the same both ways."""
    for layer, value in growth().items():
        assert value == pytest.approx((1 + 0.32 * 5) / (1 + 0.32 * layer))


def test_post_keeps_gradients_for_a_relu_only() -> None:
    assert growth(placement="post")[0] == pytest.approx(1)
    gelu = growth(placement="post", activation="gelu", init="fan-in")[0]
    assert gelu == pytest.approx((1.4559 / 1.4252) ** 5, rel=1e-3)


def test_swiglu_explodes_in_post() -> None:
    found = growth(placement="post", activation="swiglu", init="fan-in")[0]
    assert found == pytest.approx((1.7353 / 1.3558) ** 5, rel=2e-3)


def test_norms_lose_their_directions_at_finite_width() -> None:
    wide, narrow = (growth(finite=finite, norm="layernorm", depth=1)[0] for finite in (False, True))
    assert narrow == pytest.approx(1 + (wide - 1) * (1 - 2 / 64), rel=1e-4)


def test_identity_blocks_pass_gradients_as_they_are() -> None:
    assert growth(placement="rezero")[0] == 1


def test_b2t_brings_the_gradient_twice() -> None:
    """Two equal skips double the gradient: 4 times its square, over the norm's 4 + v; the branch adds χ."""
    assert growth(placement="b2t", depth=1)[0] == pytest.approx((4 + 0.32) / 4.32)


def test_value_path_keeps_the_sum_over_tokens() -> None:
    """Weights of a position sum to one: uniform attention sends back all of a coherent gradient."""
    spec = ModelSpec(**(FIXED | {"attention": "uniform", "depth": 1, "placement": "none", "init": "fan-in"}))
    step = forward(spec, PAIRS).steps[0]
    coherent = np.ones_like(PAIRS.own)
    after, _ = step_back(step, Gradient(coherent))
    assert PAIRS.total(after.x - coherent) == pytest.approx(PAIRS.total(coherent))


def test_queries_and_keys_need_tokens_that_differ() -> None:
    spec = ModelSpec(**(FIXED | {"attention": "softmax", "depth": 1}))
    alike = of_random(1, 12, 1)
    walked = forward(spec, alike)
    roles = {role: alike.total(part) for back in backward(walked, alike.own) for role, part in back.roles.items()}
    assert roles["q"] == pytest.approx(0, abs=1e-9 * roles["v"])
    assert roles["k"] == pytest.approx(0, abs=1e-9 * roles["v"])


def test_head_gradient_is_softmax_less_target() -> None:
    """With logits 0 every error is 1/V less one target: its square is 1 − 1/V."""
    spec = ModelSpec(**(FIXED | {"init": "fan-in", "init_options": {"head": 0.0}, "vocab": 8}))
    pairs = of_random(1, 12, 8)
    found = head(forward(spec, pairs))
    assert found.loss == pytest.approx(np.log(8), rel=1e-4)
    assert pairs.trace(found.role) == pytest.approx((1 - 1 / 8) * 64 * 12 / 12**2, rel=1e-4)


@pytest.mark.parametrize("detail", ["tokens", "averages"])
def test_the_jacobian_beside_a_gradient_is_the_one_by_itself(detail: str) -> None:
    spec = ModelSpec(depth=4, width=64, placement="post", norm="layernorm")
    rows = predict(spec, 1, 12, detail=detail)
    found = rows[rows["quantity"] == "apjn"].set_index("layer")["value"]
    pairs = of_random(1, 12, spec.vocab)
    expected = end_to_end(forward(spec, pairs if detail == "tokens" else averages(pairs)))
    for layer, value in expected.items():
        assert found[layer] == pytest.approx(value, rel=1e-12)
