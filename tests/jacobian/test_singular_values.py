"""All singular values: rank, condition number, volume; and the residuals of a few."""

import numpy as np
import pytest
import torch
from scipy import stats

from normlab import jacobian
from normlab.jacobian import JacobianError, NonFiniteJacobian
from normlab.norms import NORMS


def test_volume_and_condition_number_are_those_of_the_matrix(drawn) -> None:
    a = drawn(30, 30)
    found = jacobian.spectrum(lambda x: a @ x, drawn(30), k=None)
    assert found.complete and found.rank == 30
    assert found.log_volume() == pytest.approx(float(torch.linalg.slogdet(a).logabsdet), rel=1e-12)
    assert found.condition() == pytest.approx(float(torch.linalg.cond(a)), rel=1e-9)
    assert found.residuals.max() < 1e-13


def test_null_directions_are_counted_and_left_out_on_demand(drawn) -> None:
    x = drawn(12) * 3
    found = jacobian.spectrum(NORMS["layernorm"].make(12, eps=0.0), x, k=None)
    assert found.rank == 10 and found.condition() == np.inf and found.log_volume() == -np.inf
    assert found.condition(rank=10) == pytest.approx(1)
    assert found.log_volume(rank=10) == pytest.approx(-10 * float(x.std(correction=0).log()))


def test_what_needs_all_values_says_so(drawn) -> None:
    found = jacobian.spectrum(lambda x: x * 2, drawn(5), k=2)
    for ask in (found.condition, found.log_volume, lambda: found.rank):
        with pytest.raises(JacobianError, match="needs all 5 singular values and 2 are known"):
            ask()
    with pytest.raises(JacobianError, match="give 1 to 5"):
        jacobian.spectrum(lambda x: x * 2, drawn(5), k=None).condition(rank=6)
    with pytest.raises(JacobianError, match="at most 4096"):
        jacobian.spectrum(lambda x: x * 2, torch.ones(5000), k=None)


def test_residuals_bound_the_error_of_values_that_have_not_converged(drawn) -> None:
    a = drawn(400, 300)
    exact = torch.linalg.svdvals(a).numpy()
    found = jacobian.spectrum(lambda x: a @ x, drawn(300), k=5, tolerance=0.03)
    reach = found.residuals * found.values[0] * found.values
    nearest = np.abs(exact[:, None] ** 2 - found.values**2).min(axis=0)
    assert (nearest <= reach * (1 + 1e-9)).all() and reach.max() > 0


@pytest.mark.parametrize("shape", [(280, 900), (900, 280)])
def test_iterations_run_on_the_smaller_side(shape, drawn) -> None:
    a = drawn(*shape)
    found = jacobian.spectrum(lambda x: a @ x, drawn(shape[1]), k=4)
    np.testing.assert_allclose(found.values, torch.linalg.svdvals(a).numpy()[:4], rtol=1e-5)
    assert found.shape == shape and found.residuals.max() < 1e-2


def test_intervals_have_student_quantiles_and_cover(drawn) -> None:
    a = drawn(20, 20)
    truth = float(torch.linalg.matrix_norm(a))
    found = [jacobian.frobenius(lambda x: a @ x, drawn(20), probes=4, seed=s) for s in range(400)]
    one = found[0]
    reach = stats.t.ppf(0.975, 3) * one.se * 2 * one.value
    assert one.high**2 - one.value**2 == pytest.approx(reach, rel=1e-9)
    # Quantiles of a Gaussian would cover 86 %.
    assert 0.92 < np.mean([one.low < truth < one.high for one in found]) < 0.98


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e200])
@pytest.mark.parametrize("entries", [10, 300])
def test_a_jacobian_may_be_zero_or_have_squares_that_no_number_holds(size: float, entries: int, drawn) -> None:
    found = jacobian.spectrum(lambda x: x * size, drawn(entries), k=3)
    np.testing.assert_allclose(found.values, size, rtol=1e-12)
    assert found.residuals.max() < 1e-12


@pytest.mark.parametrize("entries", [10, 300])
def test_what_is_not_finite_has_no_singular_values(entries: int) -> None:
    for k in (3, None):
        with pytest.raises(NonFiniteJacobian, match="the function: its Jacobian has entries that are not finite"):
            jacobian.spectrum(torch.sqrt, torch.zeros(entries), k=k)


def test_levels_and_probes_that_are_none_are_said(drawn) -> None:
    for wrong in (0.0, 1.5):
        with pytest.raises(JacobianError, match="give the confidence level of the interval, between 0 and 1"):
            jacobian.frobenius(lambda x: x, drawn(3), level=wrong)


def test_directions_that_are_stretched_alike_are_all_found(drawn) -> None:
    norm, x = NORMS["layernorm"].make(40, eps=0.0), drawn(1, 8, 40) * torch.arange(1, 9).reshape(1, 8, 1)
    exact = jacobian.closed_form(norm.double(), x).singular_values()[:60].numpy()
    for k in (4, 60):  # each token has 38 that are equal
        found = jacobian.spectrum(norm, x, k=k)
        np.testing.assert_allclose(found.values, exact[:k], rtol=1e-9)
        assert found.residuals.max() < 1e-6


def test_more_may_be_asked_for_than_there_are(drawn) -> None:
    a, b = drawn(300, 2), drawn(300, 2, seed=1)
    found = jacobian.spectrum(lambda x: a @ (b.T @ x), drawn(300), k=5).values
    np.testing.assert_allclose(found[:2], torch.linalg.svdvals(a @ b.T)[:2].numpy(), rtol=1e-9)
    assert found[2:].max() < 1e-5 * found[0]
