"""The recorder's kernel for two tensors, run by the emulator, against float64."""

import pytest
import torch
from cuemu.moments import draw, exact, pair

pytestmark = pytest.mark.needs("compiler")


@pytest.mark.parametrize(("rows", "d"), [(5, 1), (3, 77), (6, 1000), (2, 5000)])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_pairs(rows: int, d: int, scale: float) -> None:
    x, other = draw(rows, d) * scale, draw(rows + 1, d)[1:] / scale
    found, a, b = pair(x, other)["moments"], x.double(), other.double()
    deviations = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    covariance = (deviations[0] * deviations[1]).sum(-1)
    sizes = deviations[0].norm(dim=-1) * deviations[1].norm(dim=-1)
    assert ((found[:, 5] - covariance).abs() <= 1e-6 * sizes).all()
    assert ((found[:, 6] - (a * b).sum(-1)).abs() <= 1e-6 * a.norm(dim=-1) * b.norm(dim=-1)).all()
    torch.testing.assert_close(found[:, 3], deviations[0].square().sum(-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(found[:, 4], deviations[1].square().sum(-1), rtol=1e-6, atol=0)


def test_the_variance_of_a_sum() -> None:
    """variance(sum) = variance(x) + variance(other) + 2 covariance."""
    x, other = draw(4, 320), draw(5, 320)[1:]
    found, of_sum = pair(x, other)["moments"], exact(x.double() + other.double())
    torch.testing.assert_close(found[:, 3] + found[:, 4] + 2 * found[:, 5], of_sum[:, 2], rtol=1e-6, atol=0)


def test_a_pair_with_a_nonfinite_half() -> None:
    x, other = draw(2, 64), draw(3, 64)[1:]
    other[0, 5] = torch.nan
    assert pair(x, other)["moments"][:, [0, 7]].tolist() == [[63, 1], [64, 0]]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("d", [61, 640, 5000])
def test_what_a_stored_sum_lost(dtype: str, d: int) -> None:
    x, other = draw(4, d, dtype), draw(5, d, dtype)[1:] * 300
    stored = x + other
    found = pair(x, other, stored=stored)
    exact = (stored.double() - (x.double() + other.double())).square().sum(-1)
    assert exact.min() > 0
    torch.testing.assert_close(found["lost"], exact, rtol=1e-12, atol=0)
    assert found["moments"].equal(pair(x, other)["moments"])


def test_a_sum_whose_terms_are_too_far_apart_for_float64() -> None:
    """Exact in rational numbers: 2^40 + 2^-40 stored as 2^40 has lost 2^-40."""
    x, other = torch.full((1, 8), 2.0**-40), torch.full((1, 8), 2.0**40)
    assert pair(x, other, stored=other)["lost"].item() == 8 * 2.0**-80


def test_a_stored_sum_that_is_not_finite() -> None:
    x, other = draw(3, 96), draw(4, 96)[1:]
    stored = x + other
    stored[1, 2], other[2, 4] = torch.inf, torch.nan
    assert pair(x, other, stored=stored)["lost"].isnan().tolist() == [False, True, True]
