"""Products, dense matrices, estimates and spectra against closed forms and against each other."""

import numpy as np
import pytest
import torch
from torch import nn

from normlab import jacobian
from normlab.errors import DataError, UnknownNameError
from normlab.jacobian import JacobianError
from normlab.norms import NORMS


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def point(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (1, 4)])
def test_a_linear_function_is_its_own_jacobian(shape) -> None:
    a = matrix(*shape)
    torch.testing.assert_close(jacobian.dense(lambda x: a @ x, point(shape[1])), a, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("norm", "zeros"), [("layernorm", 2), ("rmsnorm", 1)])
def test_singular_values_of_norms(norm, zeros) -> None:
    x = point(64)
    scale = x.std(correction=0) if norm == "layernorm" else x.square().mean().sqrt()
    values = torch.linalg.svdvals(jacobian.dense(NORMS[norm].build(64, eps=0.0), x))
    torch.testing.assert_close(values[: 64 - zeros], (1 / scale).expand(64 - zeros), rtol=1e-12, atol=0)
    assert values[64 - zeros :].max() < 1e-12


def test_products_agree_with_the_matrix_and_with_each_other() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)).double()
    x, v, u = point(6), matrix(6, 1)[:, 0], matrix(4, 1, 2)[:, 0]
    full = jacobian.dense(module, x)
    with jacobian.linearised(module, x) as product:
        torch.testing.assert_close(product.jvp(v), full @ v)
        torch.testing.assert_close(product.vjp(u), full.T @ u)


def test_attention_has_jacobian_products() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = point(1, 1, 4, 3)
    expected = torch.autograd.functional.jacobian(attend, x).reshape(12, 12)
    torch.testing.assert_close(jacobian.dense(attend, x), expected)


@pytest.mark.parametrize(
    ("law", "variance"),
    [
        ("gaussian", lambda m: 2 * m.square().sum()),
        ("rademacher", lambda m: 2 * (m.square().sum() - m.diagonal().square().sum())),
        ("sphere", lambda m: 2 * len(m) / (len(m) + 2) * (m.square().sum() - m.trace() ** 2 / len(m))),
    ],
)
def test_hutchinson_is_unbiased_with_the_variance_of_its_law(law, variance) -> None:
    a = torch.eye(24, dtype=torch.float64) + matrix(24, 24) / 24**0.5
    probes = 4000
    found = jacobian.frobenius(lambda x: a @ x, point(24), probes=probes, law=law)
    expected_se = float((variance(a @ a.T) / probes).sqrt() / (2 * torch.linalg.matrix_norm(a)))
    assert found.se == pytest.approx(expected_se, rel=0.08)
    assert abs(found.value - float(torch.linalg.matrix_norm(a))) < 4 * found.se
    assert found.low < found.value < found.high


@pytest.mark.parametrize("law", ["rademacher", "sphere"])
def test_an_orthogonal_jacobian_needs_one_probe(law) -> None:
    q = torch.linalg.qr(matrix(16, 16))[0]
    found = jacobian.frobenius(lambda x: 3 * q @ x, point(16), probes=2, law=law)
    assert found.value == pytest.approx(12) and found.se < 1e-12


@pytest.mark.parametrize(("rows", "columns"), [(40, 30), (300, 280), (260, 320)])
def test_largest_singular_values(rows, columns) -> None:
    a = matrix(rows, columns)
    found = jacobian.spectrum(lambda x: a @ x, point(columns), k=7)
    expected = torch.linalg.svdvals(a).numpy()[:7]
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)
    assert (np.diff(found.values) <= 0).all() and found.residuals.max() < 1e-2
    assert jacobian.spectral_norm(lambda x: a @ x, point(columns)) == pytest.approx(expected[0], rel=1e-6)


def test_a_module_is_left_as_it_was() -> None:
    module = nn.Linear(3, 3)
    jacobian.dense(module, torch.ones(3))
    assert module.weight.dtype == torch.float32 and module.weight.grad is None and module.weight.requires_grad


def test_what_has_no_jacobian_is_refused() -> None:
    x = point(4)
    with pytest.raises(JacobianError, match="draws random numbers"):
        jacobian.dense(nn.Sequential(nn.Dropout(0.5)), x)
    with pytest.raises(JacobianError, match="running statistics"):
        jacobian.dense(nn.BatchNorm1d(4), torch.stack([x, 2 * x]))
    with pytest.raises(JacobianError, match="does not depend on x"):
        jacobian.dense(lambda x: torch.ones(3), x)
    with pytest.raises(JacobianError, match="returns a tuple"):
        jacobian.dense(lambda x: (x, x), x)
    with pytest.raises(JacobianError, match="at most 4096"):
        jacobian.dense(lambda x: x * 1, point(5000))
    with pytest.raises(JacobianError, match="at least 2"):
        jacobian.frobenius(lambda x: x * 1, x, probes=1)
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian'"):
        jacobian.frobenius(lambda x: x * 1, x, law="gausian")
    with pytest.raises(JacobianError, match="4 singular values"):
        jacobian.spectrum(lambda x: x * 1, x, k=5)
    with pytest.raises(DataError, match="finite"):
        jacobian.dense(lambda x: x * 1, torch.tensor([float("nan")]))
