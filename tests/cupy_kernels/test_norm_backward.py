"""Backward of the norms, run by the emulator, against automatic differentiation in float64."""

import pytest
import torch
from cuemu.harness import SCHEDULES, Emulator, Outcome
from cuemu.memory import Sparse
from cuemu.norms import TORCH, Norm, error_in_ulp, scale
from cuemu.norms_backward import backward, reference, statistics
from torch import Tensor

from normlab.cupy_kernels import Device, Request, plan
from normlab.cupy_kernels.spec import PAIRS

pytestmark = pytest.mark.needs("compiler")

MAPPINGS = {"lanes8": 7, "lanes16": 10, "warp2": 61, "warp4": 125, "block128": 300, "block256": 1000}
FEW = Device(2, 0)  # splits rows of 64 kB, and makes few blocks go round many rows


def draw(rows: int, d: int, dtype: str, weight: str) -> tuple[Tensor, Tensor, Tensor]:
    noise = torch.Generator().manual_seed(rows * d)
    scales = 2.0 ** torch.arange(rows).remainder(5).sub(2).unsqueeze(1)
    dy, x = torch.randn(rows, d, generator=noise), torch.randn(rows, d, generator=noise) * scales + 0.3
    gain = 1 + torch.randn(d, generator=noise) / 2
    return dy.to(TORCH[dtype]), x.to(TORCH[dtype]), gain.to(TORCH[weight])


def assert_close(
    norm: Norm, done: Outcome, dy: Tensor, x: Tensor, gain: Tensor | None, dz: Tensor | None = None
) -> None:
    """Check 0.52 units in the last place where storage rounds and 8 in float32, of terms that may cancel.

    dx is a difference of terms of a row's size, dgain and dbias are sums over rows.
    """
    dx, dgain, dbias = reference(norm, dy, x, gain, dz)
    terms = dy.double() * (1.0 if gain is None else gain.double()) * scale(norm, x)[1]
    size = terms.square().mean(-1, keepdim=True).sqrt()
    half = x.dtype != torch.float32
    assert error_in_ulp(done["dx"], dx, size * 2.0**-10 if half else size) <= (0.52 if half else 8)
    for name, exact in (("dgain", dgain), ("dbias", dbias)):
        if name in done.arrays:
            rounded = done[name].dtype != torch.float32
            size = exact.square().mean().sqrt()
            error = error_in_ulp(done[name], exact.reshape(done[name].shape), size * 2.0**-8 if rounded else size)
            assert error <= (0.52 if rounded else 8), name


@pytest.mark.parametrize("statistic", ["rms", "layer", "l2"])
@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
def test_each_pair_of_types(statistic: str, dtype: str, weight: str) -> None:
    norm, (dy, x, gain) = Norm(statistic), draw(9, 1000, dtype, weight)
    done = backward(norm, dy, x, gain, emulator=Emulator(checked=True))
    assert_close(norm, done, dy, x, gain)


@pytest.mark.parametrize("vectors", MAPPINGS.values(), ids=MAPPINGS)
@pytest.mark.parametrize("statistic", ["rms", "layer"])
def test_each_mapping(statistic: str, vectors: int) -> None:
    norm, (dy, x, gain) = Norm(statistic), draw(37, vectors * 8, "bf16", "f32")
    done = backward(norm, dy, x, gain, emulator=Emulator(checked=True), device=FEW)
    assert_close(norm, done, dy, x, gain)
    for schedule in SCHEDULES:
        again = backward(norm, dy, x, gain, emulator=Emulator(schedule, seed=2), device=FEW)
        assert all(again[name].equal(array) for name, array in done.arrays.items())


@pytest.mark.parametrize("d", [1, 3, 33, 250, 1001])
def test_odd_widths(d: int) -> None:
    norm, (dy, x, gain) = Norm("layer" if d % 2 == 0 else "rms"), draw(6, d, "f32", "f32")
    assert_close(norm, backward(norm, dy, x, gain, emulator=Emulator(checked=True)), dy, x, gain)


@pytest.mark.parametrize("statistic", ["rms", "layer", "l2"])
def test_rows_that_registers_do_not_hold(statistic: str) -> None:
    norm, (dy, x, gain) = Norm(statistic), draw(5, 17_000, "f32", "f32")
    done = backward(norm, dy, x, gain, emulator=Emulator(checked=True), device=Device(1, 0))
    assert_close(norm, done, dy, x, gain)
    again = backward(norm, dy, x, gain, emulator=Emulator("random", seed=4), device=Device(1, 0))
    assert all(again[name].equal(array) for name, array in done.arrays.items())


@pytest.mark.parametrize("d", [96, 17_000])
def test_the_gradient_that_reaches_the_sum_past_the_norm(d: int) -> None:
    norm, (dy, x, gain) = Norm("rms"), draw(5, d, "bf16", "bf16")
    dz = draw(6, d, "bf16", "bf16")[0][1:]
    assert_close(norm, backward(norm, dy, x, gain, dz=dz, emulator=Emulator(checked=True)), dy, x, gain, dz)


def test_gain_after_a_cast() -> None:
    norm, (dy, x, gain) = Norm("rms", cast_first=True), draw(9, 96, "bf16", "f32")
    assert_close(norm, backward(norm, dy, x, gain), dy, x, gain)


def test_one_gain() -> None:
    norm, (dy, x, _) = Norm("l2", one_gain=True), draw(9, 96, "f32", "f32")
    gain = torch.tensor(3.0)
    assert_close(norm, backward(norm, dy, x, gain, emulator=Emulator(checked=True)), dy, x, gain)


def test_short_vectors_have_a_constant_scale() -> None:
    dy, x, _ = draw(3, 64, "f32", "f32")
    norm = Norm("l2", eps=1e6)
    torch.testing.assert_close(backward(norm, dy, x)["dx"], dy / 1000)


def test_without_a_gain_only_dx() -> None:
    norm, (dy, x, _) = Norm("layer"), draw(4, 64, "f16", "f16")
    done = backward(norm, dy, x)
    assert set(done.arrays) == {"dx"}
    assert_close(norm, done, dy, x, None)


def test_strided_heads() -> None:
    tokens, heads, width = 5, 3, 64
    packed = draw(tokens, 3 * heads * width, "bf16", "f32")[1]
    keys = packed[:, heads * width : 2 * heads * width].view(tokens, heads, width)
    dy, _, gain = draw(tokens * heads, width, "bf16", "f32")
    done = backward(Norm("rms"), dy.view(keys.shape), keys, gain, emulator=Emulator(checked=True))
    alone = backward(Norm("rms"), dy, keys.reshape(-1, width), gain)
    assert done["dx"].reshape(-1, width).equal(alone["dx"]) and done["dgain"].equal(alone["dgain"])


def test_a_mean_of_many_standard_deviations() -> None:
    dy, x, gain = draw(4, 1024, "f32", "f32")
    x = 1000 + x / 10
    norm = Norm("layer")
    exact = reference(norm, dy, x, gain)[0]
    dx = backward(norm, dy, x, gain)["dx"].double()
    assert float((dx - exact).norm() / exact.norm()) <= 1e-5


def test_the_last_row_beyond_2_to_the_32_elements() -> None:
    rows, d = 2**20 + 1, 4096
    dy, x = torch.randn(2, d, generator=torch.Generator().manual_seed(0)).bfloat16().unbind()
    far_dy, far_x, far_dx = (Sparse(rows * d, torch.bfloat16) for _ in range(3))
    far_dy.values[-d:], far_x.values[-d:] = dy, x
    rstds = torch.ones(rows)
    rstds[-1] = statistics(Norm("rms"), x.unsqueeze(0))[1]
    chosen = plan(Request("norm_backward", "bf16", "bf16", rows, d, 8, "rms"), Device(rows, 0))
    scalars = {f"{of}_{name}": 0 for of in ("dy", "x", "dx") for name in ("group", "group_stride")}
    scalars |= {"dy_stride": d, "x_stride": d, "dx_stride": d, "dz_stride": 0, "rows": rows, "d": d}
    values = {**scalars, "dy": far_dy, "x": far_x, "dx": far_dx, "rstds": rstds, "eps": 1e-5}
    Emulator(blocks=(rows - 1, 1)).run(chosen, {**values, "by_length": 0, "one_gain": 0, "cast_first": 0})
    exact = reference(Norm("rms"), dy.unsqueeze(0), x.unsqueeze(0))[0][0]
    assert error_in_ulp(far_dx.values[-d:].clone(), exact, 2.0**-10) <= 0.52


def test_no_rows() -> None:
    assert backward(Norm("rms"), torch.empty(0, 64), torch.empty(0, 64)).arrays == {}
