"""Forward of RMSNorm, LayerNorm and L2 norm, run by the emulator, against float64."""

import pytest
import torch
from cuemu.harness import SCHEDULES, Emulator
from cuemu.norms import TORCH, Norm, error_in_ulp, forward, nan_like, reference, scale
from torch import Tensor

from normlab.cupy_kernels.spec import PAIRS

pytestmark = pytest.mark.needs("compiler")

#: Row lengths that reach every mapping of rows to threads, by the elements of a 16-byte vector.
MAPPINGS = {"lanes8": 7, "lanes32": 30, "warp2": 61, "warp8": 255, "block128": 300, "block256": 1030}


def draw(rows: int, d: int, dtype: str, seed: int = 0) -> Tensor:
    """Draw rows whose scales lie apart, so that a row that took another's statistics shows."""
    noise = torch.Generator().manual_seed(seed)
    scales = 2.0 ** torch.arange(rows).remainder(5).sub(2).unsqueeze(1)
    return (torch.randn(rows, d, generator=noise) * scales + 0.3).to(TORCH[dtype])


def weights(d: int, weight: str, seed: int = 1) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(seed)
    gain, bias = torch.randn(2, d, generator=noise)
    return (1 + gain / 2).to(TORCH[weight]), bias.to(TORCH[weight])


def assert_close(norm: Norm, y: Tensor, x: Tensor, gain: Tensor | None = None, bias: Tensor | None = None) -> None:
    """Check 0.52 units in the last place where storage rounds, 8 in float32, plus what cancellation must cost.

    An element near the mean loses digits in x - mean, one near -bias/gain in the last sum; float32 numbers of the
    terms' size are exact to a unit in their last place.
    """
    exact = reference(norm, x, gain, bias)
    terms = sum((part.double().abs().max() for part in (gain, bias) if part is not None), torch.tensor(1.0))
    # Half an ulp of fp16 or bf16 is large beside float32's errors unless the result is far smaller than its terms.
    floor = (
        terms
        if y.dtype == torch.float32
        else terms * 2.0**-10
        if norm.statistic == "layer" or bias is not None
        else 0.0
    )
    errors = torch.stack([(y.double() - one).abs() for one in exact]).amin(0)
    nearest = torch.where((y.double() - exact[0]).abs() == errors, exact[0], exact[1])
    assert error_in_ulp(y, nearest, floor) <= (8 if y.dtype == torch.float32 else 0.52)


@pytest.mark.parametrize("statistic", ["rms", "layer", "l2"])
@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
def test_each_pair_of_types(statistic: str, dtype: str, weight: str) -> None:
    norm, x, (gain, bias) = Norm(statistic), draw(5, 1000, dtype), weights(1000, weight)
    for emulator in (Emulator(checked=True), Emulator()):
        done = forward(norm, x, gain, bias if statistic == "layer" else None, emulator=emulator)
        assert_close(norm, done["y"], x, gain, bias if statistic == "layer" else None)
        assert error_in_ulp(done["rstds"], scale(norm, x)[1].flatten()) <= 8


@pytest.mark.parametrize("vectors", MAPPINGS.values(), ids=MAPPINGS)
@pytest.mark.parametrize("statistic", ["rms", "layer"])
def test_each_mapping(statistic: str, vectors: int) -> None:
    norm, x, (gain, _) = Norm(statistic), draw(7, vectors * 8, "bf16"), weights(vectors * 8, "f32")
    checked = forward(norm, x, gain, emulator=Emulator(checked=True))
    assert_close(norm, checked["y"], x, gain)
    for schedule in SCHEDULES:
        again = forward(norm, x, gain, emulator=Emulator(schedule, seed=3))
        assert again["y"].equal(checked["y"]) and again["rstds"].equal(checked["rstds"])


@pytest.mark.parametrize("d", [1, 2, 3, 31, 77, 250, 1002, 2049])
def test_odd_widths(d: int) -> None:
    for dtype in ("f32", "f16"):
        norm, x, (gain, _) = Norm("layer" if d % 2 else "rms"), draw(6, d, dtype), weights(d, dtype)
        assert_close(norm, forward(norm, x, gain, emulator=Emulator(checked=True))["y"], x, gain)


def test_cast_before_gain() -> None:
    for dtype, weight in PAIRS:
        norm, x, (gain, _) = Norm("rms", cast_first=True), draw(9, 256, dtype), weights(256, weight)
        assert_close(norm, forward(norm, x, gain)["y"], x, gain)


def test_cast_order_is_visible() -> None:
    x, (gain, _) = draw(9, 256, "bf16"), weights(256, "bf16")
    before, after = (forward(Norm("rms", cast_first=first), x, gain)["y"] for first in (True, False))
    assert not before.equal(after)


def test_no_gain() -> None:
    norm, x = Norm("rms"), draw(9, 96, "bf16")
    assert_close(norm, forward(norm, x)["y"], x)


def test_scalenorm_has_one_gain() -> None:
    norm, x, gain = Norm("l2", one_gain=True), draw(9, 96, "f32"), torch.tensor([96**0.5])
    assert_close(norm, forward(norm, x, gain)["y"], x, gain)


def test_short_vectors_are_not_stretched_to_length_one() -> None:
    x = torch.full((2, 64), 1e-4)
    torch.testing.assert_close(forward(Norm("l2", eps=1.0), x)["y"], x)


def test_zero_rows_and_zero_values() -> None:
    assert forward(Norm("rms"), torch.empty(0, 64)).arrays == {}
    assert forward(Norm("rms"), torch.zeros(3, 64))["y"].abs().max() == 0
    assert forward(Norm("layer"), torch.full((3, 64), 7.25))["y"].abs().max() == 0


@pytest.mark.parametrize("d", [1024, 8192, 200_000])
def test_ill_conditioned_rows(d: int) -> None:
    x = 1000 + 0.1 * torch.randn(2, d, generator=torch.Generator().manual_seed(5))
    y, exact = forward(Norm("layer"), x)["y"], reference(Norm("layer"), x)[0]
    assert float((y.double() - exact).norm() / exact.norm()) <= 1e-5


@pytest.mark.parametrize("offset", [1, 2, 4])
def test_misaligned_slices(offset: int) -> None:
    norm, x, (gain, _) = Norm("rms"), draw(5, 512, "f16"), weights(512, "f16")
    emulator = Emulator(checked=True, offsets={"x": offset})
    assert_close(norm, forward(norm, x, gain, emulator=emulator)["y"], x, gain)


def test_rows_with_padding_between_them() -> None:
    wide, norm = draw(6, 140, "bf16"), Norm("layer")
    x = wide[:, :128].clone().as_strided((6, 128), (128, 1))
    padded = torch.full((6, 140), torch.nan, dtype=x.dtype)
    padded[:, :128] = x
    done = forward(norm, padded[:, :128], emulator=Emulator(checked=True), y=nan_like(padded)[:, :128])
    assert done["y"].equal(forward(norm, x)["y"])


def test_heads_of_a_packed_projection() -> None:
    tokens, heads, width = 5, 3, 64
    packed = draw(tokens, 3 * heads * width, "bf16")
    keys = packed[:, heads * width : 2 * heads * width].view(tokens, heads, width)
    done = forward(Norm("rms"), keys, emulator=Emulator(checked=True))
    alone = forward(Norm("rms"), keys.reshape(-1, width))
    assert done["y"].reshape(-1, width).equal(alone["y"])
