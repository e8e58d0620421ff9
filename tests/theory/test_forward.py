import numpy as np
import pytest

from normlab.placements import Placement, Wiring, register_placement
from normlab.spec import ModelSpec
from normlab.theory.forward import forward
from normlab.theory.geometry import averages, of_random

RANDOM = of_random(1, 16, 10**9)


def squares(spec: ModelSpec, pairs=RANDOM) -> np.ndarray:
    return np.array([pairs.mean_square(step.stream) for step in forward(spec, pairs).steps])


def mlp_only(**fields: object) -> ModelSpec:
    fixed = {"depth": 6, "width": 64, "attention": "none", "activation": "relu", "norm": "rmsnorm", "norm_eps": 0.0}
    return ModelSpec(**(fixed | fields))


def test_pre_grows_by_the_branch_gain_a_layer() -> None:
    # Xavier with d_ff = 4d: fan_in σ² is 2/5 for up and 8/5 for down, so v = 0.64/2.
    np.testing.assert_allclose(squares(mlp_only()), 1 + 0.32 * np.arange(1, 7))


def test_peri_grows_by_one_whatever_the_branch() -> None:
    np.testing.assert_allclose(squares(mlp_only(placement="peri", activation="gelu")), 1 + np.arange(1, 7))


def test_post_stays_at_one() -> None:
    np.testing.assert_allclose(squares(mlp_only(placement="post")), 1)


def test_lns_grows_by_the_harmonic_numbers() -> None:
    np.testing.assert_allclose(squares(mlp_only(placement="lns")), 1 + 0.32 * np.cumsum(1 / np.arange(1, 7)))


def test_without_norms_growth_is_geometric() -> None:
    np.testing.assert_allclose(squares(mlp_only(placement="none")), 1.32 ** np.arange(1, 7))


def test_b2t_adds_the_block_input_once_more() -> None:
    """x + x_block + F(x) with x = x_block has mean square 4 + v before its norm."""
    step = forward(mlp_only(placement="b2t", depth=1), RANDOM).steps[0]
    assert RANDOM.mean_square(step.total) == pytest.approx(4.32)


def test_two_streams_keep_their_covariance() -> None:
    """out = x_S + N(y_S): with no branches both are the same vector, so the sum has mean square 4."""
    spec = mlp_only(placement="residual", init="fan-in", init_options={"down": 0.0})
    assert RANDOM.mean_square(forward(spec, RANDOM).out) == pytest.approx(4)


def test_equal_placements_have_equal_theories() -> None:
    unscaled = mlp_only(placement="completep", placement_options={"alpha": 0.0})
    np.testing.assert_array_equal(squares(unscaled), squares(mlp_only()))


def test_a_placement_of_ones_own_has_a_theory() -> None:
    halved = Wiring(inner_norm=True, branch_scale=0.5)
    register_placement(Placement(name="own-half", equation="", source="", wiring=halved, final_norm=True))
    np.testing.assert_allclose(squares(mlp_only(placement="own-half")), 1 + 0.08 * np.arange(1, 7))


def test_averages_lose_nothing_without_attention() -> None:
    spec = mlp_only(activation="gelu", placement="post")
    pairs = of_random(3, 16, 40)
    few = averages(pairs)
    for full, short in zip(forward(spec, pairs).steps, forward(spec, few).steps, strict=True):
        assert few.overlap(short.stream) == pytest.approx(pairs.overlap(full.stream))
        assert few.mean_square(short.stream) == pytest.approx(pairs.mean_square(full.stream))


def test_averages_are_close_with_attention() -> None:
    """One block of random tokens is exact; later a causal mask makes positions differ, which averages forget."""
    spec, pairs = ModelSpec(depth=8, width=64, placement="pre"), of_random(1, 32, 256)
    few = averages(pairs)
    full, short = forward(spec, pairs).steps, forward(spec, few).steps
    for step, allowed in ((0, 1e-3), (-1, 0.1)):
        square, overlap = pairs.mean_square(full[step].stream), pairs.overlap(full[step].stream)
        assert few.mean_square(short[step].stream) == pytest.approx(square, rel=allowed)
        assert few.overlap(short[step].stream) == pytest.approx(overlap, rel=2 * allowed)


def test_uniform_attention_without_a_mask_is_the_two_number_recursion() -> None:
    """q and p grow by s_OV² (q_z/n + (1 − 1/n) p_z), then by the MLP's kernel."""
    spec = ModelSpec(
        depth=5, width=64, kind="encoder", attention="uniform", activation="relu", norm="rmsnorm", norm_eps=0.0
    )
    q, p, n, found = 1.0, 0.0, 16, []
    for _ in range(5):
        grown = 1 / n + (1 - 1 / n) * p / q
        q, p = q + grown, p + grown
        rho = p / q
        kappa = (np.sqrt(1 - rho**2) + rho * (np.pi - np.arccos(rho))) / (2 * np.pi)
        q, p = q + 0.32, p + 0.64 * kappa
        found.append((q, p / q))
    steps = forward(spec, RANDOM).steps[1::2]
    np.testing.assert_allclose([(RANDOM.mean_square(s.stream), RANDOM.overlap(s.stream)) for s in steps], found)


def test_an_overflowing_stream_ends_the_walk() -> None:
    found = forward(mlp_only(placement="none", depth=400), RANDOM)
    assert "overflows" in found.broken
    assert 200 < len(found.steps) < 400
