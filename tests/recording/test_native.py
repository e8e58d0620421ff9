"""Compiled sums of tensors against float64 definitions, to the last digits that the order of additions leaves."""

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from normlab.recording import native
from normlab.recording.native import native_activation, native_gradient, native_pair, native_sizes, sums_of
from normlab.recording.sums import COLUMNS
from normlab.recording.tokens import Wanted

pytestmark = pytest.mark.needs("native")
#: The library has paths of its own for eight tokens and for one, for whole vectors of 8 features and for what is left.
WIDTHS = (1, 2, 7, 8, 9, 31, 32, 33, 40, 63, 64, 100, 128)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def activation_of(x: Tensor, keep: Tensor | None) -> Any:
    return native_activation(x, keep, Wanted())


def gradient_of(x: Tensor, keep: Tensor | None) -> Any:
    return native_gradient(x, keep)


def pair_of(u: Tensor, s: Tensor, total: Tensor | None, keep: Tensor | None) -> Any:
    return native_pair(u, s, total, keep)


def named(written: Any) -> dict[str, float]:
    assert written is not None
    sums = sums_of(written)
    return dict(zip(COLUMNS[sums.kind], sums.values.tolist(), strict=True)) | {"largest": sums.largest}


def activation_by_definition(x: Tensor) -> dict[str, float]:
    x = x.double()
    mean, width = x.mean(-1, keepdim=True), x.shape[-1]
    centred, unit = x - mean, x / x.norm(dim=-1, keepdim=True)
    variance = centred.square().mean(-1)
    pairs = [(i, j) for i in range(x.shape[1]) for j in range(x.shape[1]) if i != j]
    return {
        "tokens": float(x.shape[0] * x.shape[1]),
        "square": float(x.square().mean(-1).sum()),
        "mean": float(mean.sum()),
        "variance": float(variance.sum()),
        "kurtosis": float((centred.pow(4).mean(-1) / variance.square()).nansum()),
        "cosine": sum(float((unit[:, i] * unit[:, j]).sum()) for i, j in pairs),
        "overlap": sum(float((x[:, i] * x[:, j]).sum()) / width for i, j in pairs),
        "overlap_pairs": float(x.shape[0] * len(pairs)),
        "largest": float(x.abs().max()),
    }


def agree(found: dict[str, float], expected: dict[str, float], size: float) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12 * size, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_length_of_a_row(width: int, dtype: torch.dtype) -> None:
    x = (3 * draw(2, 13, width) + 1).to(dtype)
    agree(named(activation_of(x, None)), activation_by_definition(x), 1000.0)
    squares = x.double().square().sum((1, 2))
    coherent = float(x.double().sum(1).square().sum())
    expected = {"squares": float(squares.sum()), "coherent": coherent, "spread": 13 * float(squares.sum())}
    agree(named(gradient_of(x, None)), expected, 1000.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_length_of_a_pair(width: int, dtype: torch.dtype) -> None:
    u, s = draw(2, 13, width).to(dtype), 3 * draw(2, 13, width, seed=1).to(dtype)
    total, (one, two) = u + s, (u.double(), s.double())
    product = (one * two).mean(-1)
    expected = {
        "update": float(one.square().mean(-1).sum()),
        "skip": float(two.square().mean(-1).sum()),
        "product": float(product.sum()),
        "covariance": float((product - one.mean(-1) * two.mean(-1)).sum()),
        "lost": float((total.double() - (one + two)).square().mean(-1).sum()),
        "summed": 26.0,
    }
    agree(named(pair_of(u, s, total, None)), expected, 1.0)
    assert named(pair_of(u, s, None, None))["summed"] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_16_bits(dtype: torch.dtype) -> None:
    x = torch.arange(2**16).to(torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite() & ((x == 0) | (x.float().abs() >= 2.0**-126))]
    sums = activation_of(x.view(-1, 1, 1), None)
    assert sums is not None and sums_of(sums).values[0] == x.numel() > 60_000
    one = [activation_of(part.view(1, -1, 1), None) for part in x.split(4096)]
    radii = [sums_of(part).radii for part in one if part is not None]
    kept = np.concatenate([part.values for part in radii if part is not None])
    np.testing.assert_array_equal(kept, x.abs().float().numpy())
    assert named(gradient_of(x.view(-1, 1, 1), None))["squares"] == pytest.approx(float(x.double().square().sum()))


def test_any_strides() -> None:
    base = draw(6, 4, 80)
    views = (base.transpose(0, 1), base[:, 1:3], base[..., 5:50], base[::2], base[:, :1].expand(6, 9, 80))
    for view in views:
        whole, plain = (named(activation_of(x, None)) for x in (view, view.contiguous()))
        assert whole == plain
        assert named(gradient_of(view, None)) == named(gradient_of(view.contiguous(), None))
        assert named(pair_of(view, view, view, None)) == named(pair_of(*[view.contiguous()] * 3, None))


def test_only_tokens_that_count() -> None:
    x, keep = draw(3, 8, 48), torch.rand((3, 8), generator=torch.Generator().manual_seed(1)) < 0.5
    keep[1] = False
    x[~keep] = torch.nan
    found = named(activation_of(x, keep))
    parts = [named(activation_of(x[i : i + 1, keep[i]], None)) for i in (0, 2)]
    agree(found, {name: sum(part[name] for part in parts) for name in found if name != "largest"}, 1.0)
    assert found == named(activation_of(x, keep.repeat_interleave(2, 1)[:, ::2]))


def test_what_is_not_finite_or_cannot_be_held_goes_another_way() -> None:
    for value in (torch.nan, torch.inf, -torch.inf):
        x = draw(2, 3, 40)
        x[1, 2, 39] = value
        assert activation_of(x, None) is None
        assert gradient_of(x, None) is None
        assert pair_of(x, draw(2, 3, 40), None, None) is None
        assert pair_of(draw(2, 3, 40), draw(2, 3, 40), x, None) is None
        assert np.isnan(native_sizes([x], [None])[:, 1]).all()
    assert activation_of(torch.full((1, 1, 8), 1e-40), None) is None
    assert activation_of(draw(2, 3, 4), torch.ones((2, 3), dtype=torch.bool, device="meta")) is None
    for other in (draw(2, 3, 4).double(), draw(2, 4, 3).mT, draw(2, 0, 4), draw(2, 3, 4).to("meta")):
        assert activation_of(other, None) is None
        assert np.isnan(native_sizes([other], [None])).all()


def test_squares_of_many() -> None:
    tensors = [draw(3, 5), torch.nn.Parameter(draw(1000, 33)), draw(7).bfloat16(), draw(4, 4).half()]
    found = native_sizes([*tensors, tensors[1]], [None, None, None, None, (250, 777)])
    parts = [*tensors, tensors[1][250:777]]
    expected = [(part.numel(), float(part.detach().double().square().sum())) for part in parts]
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_changes_are_counted_as_torch_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = draw(3)
    changed.add_(1).mul_(2)
    with torch.inference_mode():
        uncounted = torch.ones(3)
    tensors = [changed, None, uncounted, draw(3)]
    assert [mark[0] for mark in native.marks(tensors)] == [2, -1, -1, 0]
    monkeypatch.setattr(native, "library", lambda: None)
    assert [mark[0] for mark in native.marks(tensors)] == [2, -1, -1, 0]


@pytest.mark.parametrize("places", [(), (1, 5), (-1, 2), (3, 2), (2, 2)])
def test_places_that_are_not_there_go_another_way(places: tuple[int, ...]) -> None:
    assert np.isnan(native_sizes([draw(4, 5)], [places])).all()


def test_the_largest_and_smallest_numbers_keep_their_digits() -> None:
    for scale in (1e-36, 3e38):
        x = (scale * torch.tanh(draw(2, 4, 48))).contiguous()
        assert named(gradient_of(x, None))["squares"] == pytest.approx(float(x.double().square().sum()), rel=1e-13)
        agree(named(activation_of(x, None)), {"kurtosis": activation_by_definition(x)["kurtosis"]}, 1.0)


@pytest.mark.needs("compiler")
def test_the_smallest_instruction_set_and_an_old_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(native.__file__).with_name("native.cpp")
    flags = ["-O1", "-DONE_ISA", "-DONLY_GETTERS", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno"]
    python = f"-I{sysconfig.get_path('include')}"
    plain = tmp_path / "plain.so"
    subprocess.run(["g++", *flags, "-Wno-psabi", python, str(source), "-o", str(plain)], check=True)

    def numbers() -> list[dict[str, float]]:
        found = [{"squares": float(native_sizes([draw(40_001)], [None])[0, 1])}]
        for width in (7, 8, 100, 384):
            x, y, keep = draw(3, 21, width), draw(3, 21, width, seed=1), draw(3, 21, 1, seed=2)[..., 0] > 0
            found += [named(activation_of(x, keep)), named(gradient_of(x, None)), named(pair_of(x, y, x + y, keep))]
        return found

    usual = numbers()
    monkeypatch.setattr(native, "library", lambda: native.loaded(str(plain)))
    for one, two in zip(numbers(), usual, strict=True):
        # Where products are contracted into additions the last bits differ.
        assert one == pytest.approx(two, rel=1e-13, abs=1e-12)


def test_a_histogram_takes_the_place_of_very_many_tokens() -> None:
    sums = sums_of(native_activation(draw(1, 100_000, 2), None, Wanted()))
    assert sums.values[0] == 100_000 and sums.radii is not None and not sums.radii.exact
    assert sums.values.base is None
