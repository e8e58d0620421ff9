"""Exact identities between norms, and the spectra of their Jacobians."""

import math

import pytest
import torch
from torch import Tensor

from normlab.norms import NORMS

D = 16


def _token(seed: int = 0) -> Tensor:
    return 2 * torch.randn(D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.7


def _jacobian(name: str, x: Tensor, **options: object) -> Tensor:
    return torch.autograd.functional.jacobian(NORMS[name].make(D, eps=0.0, **options).double(), x)


def _apply(name: str, x: Tensor, *, eps: float = 0.0, **options: object) -> Tensor:
    return NORMS[name].make(x.shape[-1], eps=eps, **options).double()(x)


def test_layernorm_is_rmsnorm_on_a_centred_token() -> None:
    x = _token()
    torch.testing.assert_close(_apply("layernorm", x, eps=0.1), _apply("rmsnorm", x - x.mean(), eps=0.1))


def test_groupnorm_with_one_group_is_layernorm() -> None:
    torch.testing.assert_close(_apply("groupnorm", _token(), groups=1), _apply("layernorm", _token()))


def test_batchnorm_is_layernorm_of_the_transpose() -> None:
    x = torch.stack([_token(seed) for seed in range(5)])
    torch.testing.assert_close(_apply("batchnorm", x, eps=0.1), _apply("layernorm", x.T, eps=0.1).T)


def test_scalenorm_starts_as_rmsnorm_and_l2norm_times_root_d() -> None:
    x = _token()
    torch.testing.assert_close(_apply("scalenorm", x), _apply("rmsnorm", x))
    torch.testing.assert_close(_apply("scalenorm", x), math.sqrt(D) * _apply("l2norm", x))


def test_prescaled_powernorm_is_powernorm_of_rmsnorm() -> None:
    x = torch.stack([_token(seed) for seed in range(5)])
    normed = _apply("rmsnorm", x, eps=0.1)
    torch.testing.assert_close(_apply("powernorm", x, eps=0.1, prescale=True), _apply("powernorm", normed, eps=0.1))


@pytest.mark.parametrize(
    ("name", "zeros", "singular_value"),
    [
        ("layernorm", 2, lambda x: 1 / x.std(correction=0)),
        ("rmsnorm", 1, lambda x: 1 / x.square().mean().sqrt()),
        ("scalenorm", 1, lambda x: math.sqrt(D) / x.norm()),
        ("l2norm", 1, lambda x: 1 / x.norm()),
    ],
)
def test_all_but_a_few_singular_values_are_equal(name: str, zeros: int, singular_value) -> None:
    x = _token()
    values = torch.linalg.svdvals(_jacobian(name, x))
    torch.testing.assert_close(values[:-zeros], singular_value(x).expand(D - zeros))
    torch.testing.assert_close(values[-zeros:], torch.zeros(zeros, dtype=torch.float64), atol=1e-12, rtol=0)


def test_layernorm_kills_constants_and_its_own_output() -> None:
    x = _token()
    jacobian = _jacobian("layernorm", x)
    killed = torch.stack([torch.ones_like(x), x - x.mean()], dim=1)
    for product in (jacobian @ killed, jacobian.T @ killed):
        torch.testing.assert_close(product, torch.zeros_like(product), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("name", "mean_costs"), [("layernorm", 1 / D), ("rmsnorm", 0.0)])
def test_squared_frobenius_norm_with_gains(name: str, mean_costs: float) -> None:
    x, norm = _token(), NORMS[name].make(D, eps=0.0).double()
    with torch.no_grad():
        norm.gain.copy_(_token(1))
    centred = x - x.mean() * (name == "layernorm")
    variance = centred.square().mean()
    expected = (norm.gain.square() * (1 - mean_costs - centred.square() / variance / D)).sum() / variance
    jacobian = torch.autograd.functional.jacobian(norm, x)
    torch.testing.assert_close(jacobian.square().sum(), expected.detach())


@pytest.mark.parametrize(("name", "slope"), [("dyt", 0.8), ("derf", 0.8 * 2 / math.sqrt(math.pi))])
def test_slope_at_zero(name: str, slope: float) -> None:
    jacobian = _jacobian(name, torch.zeros(D, dtype=torch.float64), alpha=0.8)
    torch.testing.assert_close(jacobian, slope * torch.eye(D, dtype=torch.float64))
