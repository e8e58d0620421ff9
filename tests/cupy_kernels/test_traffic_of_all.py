"""Bytes that every kernel moves of every array, and in how many sectors."""

from dataclasses import replace

import pytest
import torch
from cuemu.harness import Emulator, Traffic
from cuemu.norms import H100, Norm, forward, nan_like
from cuemu.norms_backward import backward
from cuemu.squash import run
from torch import Tensor

from normlab.cupy_kernels import FUNCTIONS, Device, Plan
from normlab.cupy_kernels.calls import moments_call
from normlab.cupy_kernels.plan_moments import total_moments

pytestmark = pytest.mark.needs("compiler")

COUNTED = Emulator(checked=True, counting=True)
ROWS, D, LONG = 8, 2048, 65_536
ROW, SUMS = ROWS * D * 2, ROWS * D * 4  # bytes of all rows in bfloat16, and of a row of float32 sums for each
#: Bytes read or written of each array, each once; a row's sums are written by each block that has some.
LEAST = {
    "norm_forward": {"x": ROW, "residual": ROW, "y": ROW, "z": ROW, "rstds": ROWS * 4},
    "norm_moments": {"x": LONG * 2, "residual": LONG * 2, "z": LONG * 2},
    "norm_apply": {"x": LONG * 2, "y": LONG * 2},
    "norm_backward": {"dy": ROW, "dz": ROW, "dx": ROW, "gain_parts": SUMS, "bias_parts": SUMS},
    "norm_backward_sums": {"dy": LONG * 4},
    "norm_backward_apply": {"dy": LONG * 4, "dz": LONG * 4, "dx": LONG * 4},
    "norm_backward_columns": {"dy": LONG * 4, "gain_parts": LONG * 4, "bias_parts": LONG * 4},
    "column_sum": {"parts": SUMS, "total": D * 4},
    "squash_forward": {"x": ROW, "y": ROW, "gain": SUMS, "bias": SUMS},
    "squash_backward": {"dy": ROW, "x": ROW, "dx": ROW, "gain": SUMS, "gain_parts": SUMS, "bias_parts": SUMS},
    "tensor_moments": {"x": ROW, "tokens": ROWS * 6 * 8},
    "pair_moments": {"x": ROW, "other": ROW, "stored": ROW, "moments": ROWS * 8 * 8, "lost": ROWS * 8},
    "sequence_sums": {"x": ROW, "parts": 2 * D * 8},
    "moments_total": {"moments": ROWS * 8 * 8, "total": 8 * 8},
}
#: Arrays whose sectors are touched twice: eight float32 numbers of a thread are two accesses, half a sector each.
TWICE = {
    *((kernel, f"{of}_parts") for kernel in LEAST if "backward" in kernel for of in ("gain", "bias")),
    *((f"squash_{way}", of) for way in ("forward", "backward") for of in ("gain", "bias")),
}


def drawn(count: int, rows: int = ROWS, d: int = D) -> tuple[Tensor, ...]:
    return torch.randn(count, rows, d, generator=torch.Generator().manual_seed(0)).bfloat16().unbind()


@pytest.fixture(scope="module")
def traffic() -> dict[str, Traffic]:
    """What all kernels move, by kernel and array."""
    x, other, dy, dz = drawn(4)
    weights = {"alpha": torch.tensor([0.5]), "shift": torch.tensor([0.1]), "gain": torch.ones(D), "bias": torch.ones(D)}
    nan = [nan_like(x, *shape, dtype=torch.float64) for shape in ((ROWS, 8), (ROWS,), (6, ROWS), (1, 1, 2, D), (8,))]
    eight, lost, tokens, parts, total = nan
    good = torch.tensor([1.0] * 6 + [0.0, 1.0]).double().repeat(ROWS, 1)  # the seventh counts what is not finite
    sums = moments_call({"x": x.view(1, ROWS, D), "norms": torch.ones(ROWS).double()}, length=ROWS)
    long_x, long_dy, long_dz = drawn(3, 2, LONG)
    outcomes = [
        forward(Norm("rms"), x, residual=other, emulator=COUNTED),
        forward(Norm("rms"), long_x[:1], residual=long_dy[:1], emulator=COUNTED),
        backward(Norm("layer"), dy, x, torch.ones(D), dz, COUNTED),
        backward(Norm("layer"), long_dy, long_x, torch.ones(LONG), long_dz, COUNTED, Device(8, 0)),
        run("erf", x, weights, emulator=COUNTED),
        run("erf", x, weights, dy, emulator=COUNTED),
        COUNTED.call(moments_call({"x": x, "tokens": tokens}), H100),
        COUNTED.call(moments_call({"x": x, "other": dy, "stored": dz, "moments": eight, "lost": lost}), H100),
        COUNTED.call(replace(sums, values={**sums.values, "parts": parts}), H100),
        COUNTED.run(Plan((total_moments(),)), {"moments": good, "total": total, "rows": ROWS}),
    ]
    return {name: each for outcome in outcomes for name, each in outcome.traffic.items()}


def test_every_kernel_is_here() -> None:
    assert set(LEAST) == set(FUNCTIONS)


@pytest.mark.parametrize(("kernel", "array"), [(kernel, array) for kernel in LEAST for array in LEAST[kernel]])
def test_each_byte_is_moved_once(traffic: dict[str, Traffic], kernel: str, array: str) -> None:
    of = traffic[f"{kernel}.{array}"]
    assert of.read_bytes + of.written_bytes == LEAST[kernel][array]


ALIGNED = [(kernel, array) for kernel in LEAST for array, bytes in LEAST[kernel].items() if bytes >= ROWS * D]


@pytest.mark.parametrize(("kernel", "array"), ALIGNED)
def test_warps_are_coalesced(traffic: dict[str, Traffic], kernel: str, array: str) -> None:
    of = traffic[f"{kernel}.{array}"]
    sectors, moved = of.read_sectors + of.written_sectors, of.read_bytes + of.written_bytes
    assert sectors * 32 == moved * (2 if (kernel, array) in TWICE else 1)


def test_sums_that_are_not_wanted_cost_nothing() -> None:
    dy, x = drawn(2)
    moved = backward(Norm("layer"), dy, x, emulator=COUNTED).traffic
    assert {name for name, of in moved.items() if of.written_bytes} == {"norm_backward.dx"}
