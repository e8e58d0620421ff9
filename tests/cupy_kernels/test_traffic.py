"""Bytes that are moved, counted: each input is read once and each output written once, in whole sectors."""

import pytest
import torch
from cuemu.harness import Emulator, Traffic
from cuemu.norms import Norm, forward
from cuemu.norms_backward import backward
from cuemu.squash import run

from normlab.cupy_kernels import Device

pytestmark = pytest.mark.needs("compiler")

COUNTED = Emulator(checked=True, counting=True)


def assert_streamed_once(traffic: Traffic, elements: int, itemsize: int, *, written: bool = False) -> None:
    moved = traffic.written_bytes if written else traffic.read_bytes
    sectors = traffic.written_sectors if written else traffic.read_sectors
    instructions = traffic.written_instructions if written else traffic.read_instructions
    assert moved == elements * itemsize
    assert sectors * 32 == moved  # every sector that is fetched is used, and none is fetched twice
    assert instructions * 512 == moved  # 32 lanes of 16 bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("d", [256, 1024, 4096, 8192])
def test_rmsnorm_moves_the_least(d: int, dtype: torch.dtype) -> None:
    rows = 8
    traffic = forward(Norm("rms"), torch.randn(rows, d).to(dtype), emulator=COUNTED).traffic
    assert_streamed_once(traffic["norm_forward.x"], rows * d, dtype.itemsize)
    assert_streamed_once(traffic["norm_forward.y"], rows * d, dtype.itemsize, written=True)
    assert traffic["norm_forward.rstds"].written_bytes == rows * 4


def test_a_row_in_shared_memory_is_read_once() -> None:
    traffic = forward(Norm("rms"), torch.randn(2, 16_640).bfloat16(), emulator=COUNTED).traffic
    assert traffic["norm_forward.x"].read_bytes == traffic["norm_forward.y"].written_bytes == 2 * 16_640 * 2


def test_layernorm_reads_its_pivot_besides() -> None:
    rows, d = 8, 1024
    traffic = forward(Norm("layer"), torch.randn(rows, d).bfloat16(), emulator=COUNTED).traffic["norm_forward.x"]
    assert traffic.read_sectors == rows * (d * 2 // 32 + 1)


def test_the_fused_add_reads_and_writes_twice() -> None:
    rows, d = 8, 1024
    x, residual = torch.randn(2, rows, d).bfloat16().unbind()
    traffic = forward(Norm("rms"), x, residual=residual, emulator=COUNTED).traffic
    for name in ("x", "residual"):
        assert_streamed_once(traffic[f"norm_forward.{name}"], rows * d, 2)
    for name in ("y", "z"):
        assert_streamed_once(traffic[f"norm_forward.{name}"], rows * d, 2, written=True)


def test_a_split_row_is_read_twice() -> None:
    traffic = forward(Norm("rms"), torch.randn(1, 65_536), emulator=COUNTED).traffic
    for name in ("norm_moments.x", "norm_apply.x"):
        assert_streamed_once(traffic[name], 65_536, 4)


@pytest.mark.parametrize("d", [1024, 4096])
def test_backward_moves_the_least_and_its_parts(d: int) -> None:
    rows = 8
    dy, x = torch.randn(2, rows, d).bfloat16().unbind()
    traffic = backward(Norm("rms"), dy, x, torch.ones(d), emulator=COUNTED).traffic
    for name in ("dy", "x"):
        assert_streamed_once(traffic[f"norm_backward.{name}"], rows * d, 2)
    assert_streamed_once(traffic["norm_backward.dx"], rows * d, 2, written=True)
    blocks = rows // (4 if d == 1024 else 1)
    assert traffic["norm_backward.gain_parts"].written_bytes == blocks * d * 4
    assert traffic["column_sum.parts"].read_bytes == blocks * d * 4


def test_split_backward_reads_three_times() -> None:
    rows, d = 2, 17_000
    dy, x = torch.randn(2, rows, d).unbind()
    traffic = backward(Norm("rms"), dy, x, torch.ones(d), emulator=COUNTED, device=Device(1, 0)).traffic
    for stage in ("sums", "apply", "columns"):
        for name in ("x", "dy"):
            assert traffic[f"norm_backward_{stage}.{name}"].read_bytes == rows * d * 4
    assert traffic["norm_backward_apply.dx"].written_bytes == rows * d * 4


def test_dyt_moves_the_least() -> None:
    dy, x = torch.randn(2, 8, 2048).bfloat16().unbind()
    weights = {"alpha": torch.tensor([0.5]), "shift": None, "gain": torch.ones(2048), "bias": torch.ones(2048)}
    forward_traffic = run("tanh", x, weights, emulator=COUNTED).traffic
    assert_streamed_once(forward_traffic["squash_forward.x"], 8 * 2048, 2)
    assert_streamed_once(forward_traffic["squash_forward.y"], 8 * 2048, 2, written=True)
    traffic = run("tanh", x, weights, dy, emulator=COUNTED).traffic
    assert_streamed_once(traffic["squash_backward.x"], 8 * 2048, 2)
    assert_streamed_once(traffic["squash_backward.dy"], 8 * 2048, 2)
    assert_streamed_once(traffic["squash_backward.dx"], 8 * 2048, 2, written=True)
