"""The recorder's kernels, launched through the emulator, against the recorder's own float64."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from normlab.norms import backend
from normlab.recording.careful import careful_activation, careful_gradient, careful_pair
from normlab.recording.on_device import device_activation, device_gradient, device_pair
from normlab.recording.tokens import TokenMoments, Wanted

sys.path.insert(0, str(Path(__file__).parents[1]))

pytestmark = pytest.mark.needs("compiler")

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuemu.launching import EMULATED

    for name, value in (("OPERATORS", EMULATED), ("DEVICE", "cpu"), ("MISSING", "")):
        monkeypatch.setattr(backend, name, value)


def draw(dtype: torch.dtype, scale: float = 1.0, seed: int = 0) -> Tensor:
    x = torch.randn(3, 7, 40, generator=torch.Generator().manual_seed(seed)) + 0.3
    x[1, 2], x[0, 0] = 0.0, 1.5  # a zero token and a constant one
    return (x * scale).to(dtype)


def assert_close(found: TokenMoments | None, expected: TokenMoments, rtol: float = 1e-6) -> None:
    assert found is not None and found.width == expected.width
    for one, other in zip((*found.tokens, *found.sequences), (*expected.tokens, *expected.sequences), strict=True):
        size = other.double().nan_to_num().abs().max()
        torch.testing.assert_close(one, other.double(), rtol=rtol, atol=float(rtol * size), equal_nan=True)
    largest = [torch.stack([each.abs().max() for each in which.largest]).max() for which in (found, expected)]
    assert largest[0] == largest[1] and int(found.nonfinite) == int(expected.nonfinite)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spoilt", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_activations_and_gradients(dtype: torch.dtype, spoilt: bool, masked: bool) -> None:
    x = draw(dtype)
    if spoilt:
        x[2, 3, 5], x[0, 1, 1], x[0, 1, 2] = torch.nan, torch.inf, -torch.inf
    keep = (torch.arange(21).view(3, 7) % 4 > 0) if masked else None
    assert_close(device_activation(x, keep, Wanted()), careful_activation(x, keep))
    assert_close(device_gradient(x, keep, Wanted()), careful_gradient(x, keep))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_over_the_range_of_float32(scale: float) -> None:
    x = draw(torch.float32, scale)
    assert_close(device_activation(x, None, Wanted()), careful_activation(x, None))
    assert_close(device_gradient(x, None, Wanted()), careful_gradient(x, None))


def test_a_view_that_is_no_row_after_row() -> None:
    x = draw(torch.float32).permute(1, 0, 2)
    assert_close(device_activation(x, None, Wanted()), careful_activation(x, None))


def test_what_is_not_wanted_is_not_computed() -> None:
    found = device_activation(draw(torch.float32), None, Wanted(total=False, direction=False))
    assert found is not None and all(each.eq(0).all() for each in found.sequences)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs(dtype: torch.dtype) -> None:
    u, s = draw(dtype), draw(dtype, 30, seed=1)
    total = u + s
    total[1, 1, 1], u[2, 2, 2] = torch.inf, torch.nan
    for stored in (total, None):
        found, expected = device_pair(u, s, stored), careful_pair(u, s, stored)
        assert found is not None
        torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=1e-3, equal_nan=True)
        if stored is not None:
            torch.testing.assert_close(found[1], expected[1], rtol=1e-9, atol=0, equal_nan=True)


def test_what_kernels_do_not_serve() -> None:
    x = draw(torch.float32)
    assert device_activation(x.double(), None, Wanted()) is None
    assert device_gradient(x[:0], None, Wanted()) is None
    assert device_pair(x, x.bfloat16(), None) is None
