import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from normlab.theory.kernels import kernel

RHO = np.array([-0.7, 0.0, 0.3, 0.9, 1.0])
ONE = np.ones_like(RHO)


@pytest.mark.parametrize(
    ("function", "value", "slope"),
    [(F.gelu, 0.4252, 0.4559), (F.silu, 0.3558, 0.3795), (torch.tanh, 0.3943, 0.4644), (F.relu, 0.5, 0.5)],
)
def test_gains_of_a_branch_at_unit_variance(function, value: float, slope: float) -> None:
    found = kernel(function)(np.ones(1), np.ones(1))
    assert found.value[0] == pytest.approx(value, abs=6e-5)
    assert found.slope[0] == pytest.approx(slope, abs=6e-5)


def test_relu_is_the_arc_cosine_kernel_and_its_series_agrees() -> None:
    angle = np.arccos(RHO)
    expected = (np.sin(angle) + (np.pi - angle) * RHO) / (2 * np.pi)
    closed = kernel(F.relu)(RHO, ONE)
    series = kernel(lambda z: F.relu(z))(RHO, ONE)
    np.testing.assert_allclose(closed.value, expected, atol=1e-12)
    np.testing.assert_allclose(series.value, expected, atol=1e-5)


@pytest.mark.parametrize("variance", [0.3, 20.0, 400.0])
def test_erf_is_the_arc_sine_kernel(variance: float) -> None:
    found = kernel(torch.erf)(variance * RHO, variance * ONE)
    scaled = 2 * variance / (1 + 2 * variance)
    np.testing.assert_allclose(found.value, 2 / np.pi * np.arcsin(scaled * RHO), atol=1.5e-3)
    slope = 4 / np.pi / np.sqrt((1 + 2 * variance) ** 2 - (2 * variance * RHO) ** 2)
    np.testing.assert_allclose(found.slope, slope, rtol=0.02)


def test_mean_is_the_first_hermite_coefficient() -> None:
    found = kernel(F.gelu)(np.zeros(1), np.ones(1))
    # E[x Φ(x)] = E[Φ′(x)] = 1/√(4π), by partial integration.
    assert found.mean[0] == pytest.approx(1 / (4 * math.pi), rel=1e-3)
    assert found.value[0] == pytest.approx(found.mean[0], rel=1e-3)


def test_two_variances_act_as_their_geometric_mean() -> None:
    first, second, rho = 0.9, 1.1, 0.6
    x = np.random.default_rng(0).standard_normal((2, 400_000))
    a = torch.tensor(math.sqrt(first) * x[0])
    b = torch.tensor(math.sqrt(second) * (rho * x[0] + math.sqrt(1 - rho**2) * x[1]))
    between = math.sqrt(first * second)
    found = kernel(F.silu)(np.array([rho * between]), np.array([between]))
    assert found.value[0] == pytest.approx(float((F.silu(a) * F.silu(b)).mean()), rel=0.01)


def test_price_theorem_ties_the_two_kernels() -> None:
    """The derivative of E[φφ] in ρ is v E[φ′φ′]."""
    rho, step = np.linspace(-0.8, 0.9, 12), 0.02
    up, down = (kernel(torch.tanh)(2.0 * (rho + sign * step), 2.0 * np.ones(12)).value for sign in (1, -1))
    slope = kernel(torch.tanh)(2.0 * rho, 2.0 * np.ones(12)).slope
    np.testing.assert_allclose((up - down) / (2 * step), 2.0 * slope, rtol=0.01)
