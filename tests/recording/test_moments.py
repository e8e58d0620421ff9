"""Token moments and sums of single tensors against the slow reference: dtypes, ranges, masks, odd tensors."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from normlab.recording import native
from normlab.recording.formulas import columns_of
from normlab.recording.moments import activation_moments, gradient_moments, pair_moments
from normlab.recording.native import sums_of
from normlab.recording.sums import Sums, activation_sums, gradient_sums, pair_sums
from normlab.recording.tokens import PairMoments, TokenMoments, Wanted, as_sequences

SIGNED = ("token_cosine", "token_overlap", "alignment", "grad_coherence")


def assert_close(found: dict[str, float], expected: dict[str, float], rms: float, spreads: float = 0.0) -> None:
    for name, value in expected.items():
        size = {"mean": rms, "covariance": spreads}.get(name, 1.0 if name in SIGNED else abs(value))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-6 * size, err_msg=name)


def values(sums: Sums, x: Tensor) -> dict[str, float]:
    columns = columns_of(sums.kind, [sums], [str(x.dtype).removeprefix("torch.")])
    return {name: float(column.values[0]) for name, column in columns.items()}


@pytest.fixture(params=[pytest.param("compiled", marks=pytest.mark.needs("native")), "torch"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)


def summed(found: Any, turn: Callable[[list[Any]], list[Sums]]) -> Sums:
    return turn([found])[0] if isinstance(found, TokenMoments | PairMoments) else sums_of(found)


def activation(x: Tensor, mask: Tensor | None = None) -> dict[str, float]:
    return values(summed(activation_moments(as_sequences(x), mask, Wanted()), activation_sums), x)


def gradient(x: Tensor, mask: Tensor | None = None) -> dict[str, float]:
    return values(summed(gradient_moments(as_sequences(x), mask, Wanted()), partial(gradient_sums, loss_scale=1.0)), x)


def pair(u: Tensor, s: Tensor, stored: Tensor, mask: Tensor | None = None) -> dict[str, float]:
    return values(summed(pair_moments(u, s, stored, mask, (None, None), Wanted()), pair_sums), u)


def draw(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def massive(x: Tensor) -> Tensor:
    x[0, 0, 3] = 3000.0
    return x


CASES = {
    "plain": draw((3, 7, 24)),
    "one feature": draw((2, 5, 1)),
    "one sequence": draw((1, 9, 16)),
    "off centre": 8 + 0.02 * draw((2, 8, 64)),
    "far off centre": 1000 + 0.02 * draw((2, 8, 64)),
    "one token off centre": draw((2, 8, 64)) + 50.0 * (torch.arange(8) == 3)[None, :, None],
    "massive": massive(draw((4, 16, 64))),
    "collapsed": draw((2, 1, 32)).expand(2, 6, 32) + 1e-3 * draw((2, 6, 32), 1),
    "heavy tails": draw((2, 6, 128)) ** 5,
    "zero token": draw((2, 6, 8)) * (torch.arange(6) != 2)[None, :, None],
    "constant token": torch.where((torch.arange(6) == 2)[None, :, None], 0.1, draw((2, 6, 8))),
    "all zero": torch.zeros(2, 6, 8, dtype=torch.float64),
    "many pieces": draw((3, 50, 3000)),
    "long sequences": draw((2, 130, 1500)),
    "wide": draw((1, 2, 200_000)),
    "ones": torch.ones(2, 3, 5000, dtype=torch.float64) * torch.where(torch.arange(5000) % 2 == 0, 0.1, -0.1),
    "huge": 1e30 * draw((2, 6, 32)),
    "tiny": 1e-30 * draw((2, 6, 32)),
    "largest": 3e38 * torch.tanh(draw((2, 6, 32))),
    "subnormal": 1e-40 * draw((2, 6, 32)),
    "mixed scales": draw((2, 6, 32)) * 10.0 ** torch.tensor([-30, -9, 0, 9, 20, 30])[None, :, None],
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("error")
def test_against_the_definitions(case: str, dtype: torch.dtype, reference: ModuleType) -> None:
    if dtype == torch.float16 and case in ("huge", "tiny", "largest", "subnormal", "mixed scales"):
        pytest.skip("beyond the range of float16")
    x = CASES[case].to(dtype)
    expected = reference.activation(x)
    assert_close(activation(x), expected, expected["rms"])
    expected = reference.gradient(x)
    assert_close(gradient(x), expected, 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ["plain", "massive", "zero token", "many pieces", "off centre", "huge", "tiny"])
def test_masked_tokens_count_nowhere(case: str, dtype: torch.dtype, reference: ModuleType) -> None:
    if dtype == torch.float16 and case in ("huge", "tiny"):
        pytest.skip("beyond the range of float16")
    x = CASES[case].to(dtype).clone()
    mask = torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(1)) < 0.7
    mask[0, 0], mask[-1] = True, False
    x[~mask] = float("nan")
    expected = reference.activation(x, mask)
    assert_close(activation(x, mask), expected, expected["rms"])
    assert_close(gradient(x, mask), reference.gradient(x, mask), 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tokens_that_are_not_finite_count_only_as_such(dtype: torch.dtype, reference: ModuleType) -> None:
    x = draw((2, 6, 32)).to(dtype)
    x[0, 1, 5], x[1, 2, :7], x[1, 5, 0] = float("nan"), float("inf"), float("-inf")
    expected = reference.activation(x)
    assert expected["nonfinite"] == 9 and expected["count"] == 9
    assert_close(activation(x), expected, expected["rms"])
    assert_close(gradient(x), reference.gradient(x), 1.0)


PAIRS = {
    "plain": (1.0, 1.0),
    "small update": (1e-4, 1.0),
    "lost update": (1e-12, 1.0),
    "small skip": (1.0, 1e-3),
    "lost skip": (1e8, 1e-3),
    "huge": (1e30, 1e31),
    "tiny": (1e-30, 1e-31),
    "far apart": (1e-20, 1e20),
    "off range": (1.0, 1e-12),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", PAIRS)
def test_pairs_against_the_definitions(case: str, dtype: torch.dtype, reference: ModuleType) -> None:
    if dtype == torch.float16 and case in ("huge", "tiny", "far apart", "lost update", "off range", "lost skip"):
        pytest.skip("beyond the range of float16")
    size, other = PAIRS[case]
    u, s = (size * draw((2, 40, 96)) + 0.3 * size).to(dtype), (other * draw((2, 40, 96), 1)).to(dtype)
    expected = reference.update(u, s, u + s)
    spreads = float(u.double().std(-1).mean() * s.double().std(-1).mean())
    assert_close(pair(u, s, u + s), expected, 1.0, spreads)


def test_pairs_of_many_pieces_and_masks(reference: ModuleType) -> None:
    u, s = draw((3, 50, 3000)).float(), draw((3, 50, 3000), 1).float()
    mask = torch.rand(3, 50, generator=torch.Generator().manual_seed(1)) < 0.7
    assert_close(pair(u, s, u + s), reference.update(u, s, u + s), 1.0, 1.0)
    assert_close(pair(u, s, u + s, mask), reference.update(u, s, u + s, mask), 1.0, 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides_do_not_matter(dtype: torch.dtype, reference: ModuleType) -> None:
    x = draw((2, 16, 6)).to(dtype).transpose(1, 2)
    assert_close(activation(x), reference.activation(x), 1.0)
    flat = torch.ones((), dtype=dtype).expand(2, 6, 16)
    assert_close(gradient(flat), reference.gradient(flat), 1.0)


def test_eight_sequences_are_four_times_two() -> None:
    x = draw((8, 16, 24)).float()
    whole, *parts = (summed(activation_moments(part, None, Wanted()), activation_sums) for part in (x, *x.split(2)))
    merged = parts[0] + parts[1] + parts[2] + parts[3]
    np.testing.assert_allclose(merged.values, whole.values, rtol=1e-12)
    assert merged.largest == whole.largest
    assert values(merged, x) == pytest.approx(values(whole, x), rel=1e-12)


def test_a_gaussian_has_its_finite_width_kurtosis() -> None:
    d = 12
    found = activation(draw((4, 4096, d)).float())["kurtosis"]
    assert found == pytest.approx(3 * (d - 1) / (d + 1), rel=0.01)
