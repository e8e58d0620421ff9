"""Bugs that are put into the forward kernels, each of which the tests' own means must find."""

import re

import pytest
import torch
from cuemu.harness import Emulator, KernelFault
from cuemu.memory import Sparse
from cuemu.mutation import Bug
from cuemu.norms import Norm, error_in_ulp, forward, reference, scale

from normlab.cupy_kernels import DEVICES, Device, Request, plan

pytestmark = pytest.mark.needs("compiler")


def normal(rows: int, d: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(rows, d, generator=torch.Generator().manual_seed(rows + d)) + 0.5).to(dtype)


def check(
    norm: Norm, x: torch.Tensor, gain: torch.Tensor | None, emulator: Emulator, device: Device = DEVICES["sm_90"]
) -> None:
    done = forward(norm, x, gain, emulator=emulator, device=device)
    exact = reference(norm, x, gain)[0]
    assert error_in_ulp(done["y"], exact, 1.0) <= (8 if x.dtype == torch.float32 else 0.52)
    assert error_in_ulp(done["rstds"], scale(norm, x)[1].flatten()) <= 8
    if norm.statistic == "layer":
        shifts = x.double().mean(1) - x[:, 0].double()
        assert error_in_ulp(done["shifts"], shifts, 0.1) <= 8


def block(emulator: Emulator) -> None:
    """LayerNorm by blocks of 128 threads, with an incomplete last vector step."""
    check(Norm("layer"), normal(3, 1500), torch.linspace(0.5, 2, 1500), emulator)


def warp(emulator: Emulator) -> None:
    """RMSNorm by parts of warps, with rows missing in the last block."""
    check(Norm("rms"), normal(37, 40, torch.bfloat16), torch.linspace(0.5, 2, 40), emulator)


def zeros(emulator: Emulator) -> None:
    assert forward(Norm("rms"), torch.zeros(2, 40), emulator=emulator)["y"].abs().max() == 0


def padded(emulator: Emulator) -> None:
    wide = torch.full((6, 72), torch.nan)
    wide[:, :64] = x = normal(6, 64)
    check(Norm("rms"), x, None, emulator)
    assert forward(Norm("rms"), wide[:, :64], emulator=emulator)["y"].isfinite().all()


def conditioned(emulator: Emulator) -> None:
    x = 1000 + 0.1 * normal(2, 1500)
    y, exact = forward(Norm("layer"), x, emulator=emulator)["y"], reference(Norm("layer"), x)[0]
    assert float((y.double() - exact).norm() / exact.norm()) <= 1e-5


def shared(emulator: Emulator) -> None:
    """A row in dynamic shared memory."""
    check(Norm("layer"), normal(1, 16_400, torch.bfloat16), None, emulator)


def split(emulator: Emulator) -> None:
    """A row in two slices of three and two chunks, of which the last is short."""
    check(Norm("layer"), normal(1, 17_000) + torch.linspace(0, 3, 17_000), None, emulator, Device(1, 0))


def fused(emulator: Emulator) -> None:
    x, residual = normal(4, 64, torch.bfloat16), normal(5, 64, torch.bfloat16)[1:]
    done = forward(Norm("rms"), x, residual=residual, emulator=emulator)
    assert done["z"].equal(x + residual) and done["y"].equal(forward(Norm("rms"), x + residual)["y"])


def heads(emulator: Emulator) -> None:
    packed = normal(5, 3 * 64).view(5, 3, 64)[:, 1:]
    y = forward(Norm("rms"), packed, emulator=emulator)["y"]
    assert y.reshape(-1, 64).equal(forward(Norm("rms"), packed.reshape(-1, 64))["y"])


def rounded_first(emulator: Emulator) -> None:
    x, gain = normal(4, 64, torch.bfloat16), torch.linspace(0.5, 2, 64)
    expected = (forward(Norm("rms"), x)["y"].float() * gain).bfloat16()
    assert forward(Norm("rms", cast_first=True), x, gain, emulator=emulator)["y"].equal(expected)


def clamped(emulator: Emulator) -> None:
    x = torch.full((2, 64), 1e-4)
    torch.testing.assert_close(forward(Norm("l2", eps=1.0), x, emulator=emulator)["y"], x)


def far(emulator: Emulator) -> None:
    rows, d = 2**25 + 1, 64
    x = Sparse(rows * d, torch.float32)
    x.values[-d:] = 2.0
    chosen = plan(Request("norm_forward", "f32", "f32", rows, d, 4, "rms"), DEVICES["sm_90"])
    y = Sparse(rows * d, torch.float32)
    values = {f"{of}_{name}": 0 for of in "xy" for name in ("group", "group_stride")}
    values |= {
        "x_stride": d,
        "y_stride": d,
        "rows": rows,
        "d": d,
        "eps": 1e-6,
        "by_length": 0,
        "one_gain": 0,
        "cast_first": 0,
    }
    last = chosen.launches[0].grid - 1
    Emulator(blocks=(last, 1), mutate=emulator.mutate).run(chosen, {**values, "x": x, "y": y})
    torch.testing.assert_close(y.values[-d:].clone(), torch.ones(d))


RACE = "shared memory race"
BUGS = {
    "no barrier before scratch is used again": Bug("__syncthreads();  // whoever", "//", block, RACE),
    "no barrier before the warps' sums are read": Bug(
        "__syncthreads();\n    value = scratch[0]", "value = scratch[0]", block, "race|uninitialised shared"
    ),
    "half of the warps left out": Bug("warp < TEAM / 32", "warp < TEAM / 64", block),
    "a warp too many": Bug("warp < TEAM / 32", "warp <= TEAM / 32", block, "uninitialised|out-of-bounds"),
    "the butterfly starts too low": Bug("offset = LANES / 2", "offset = LANES / 4", warp),
    "the butterfly ends too soon": Bug("offset > 0;", "offset > 1;", warp),
    "a barrier that one lane reaches": Bug(
        "if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;\n    __syncthreads();",
        "if (threadIdx.x % 32 == 0) { scratch[threadIdx.x / 32] = value; __syncthreads(); }",
        *(block, "race|deadlock|divergence"),
    ),
    "a mask of half a warp": Bug("0xffffffffu, value", "0x0000ffffu, value", warp, "does not name the calling lane"),
    "rows beyond the last leave early": Bug(
        "const int end = row < rows ? d : 0;", "const int end = d; if (row >= rows) return;", warp, "exited"
    ),
    "one row too many": Bug("row < rows ? d : 0", "row <= rows ? d : 0", warp, "out-of-bounds"),
    "one row too few": Bug("row < rows ? d : 0", "row < rows - 1 ? d : 0", warp),
    "one vector too many": Bug("column >= end", "column > end", block, "out-of-bounds"),
    "one vector too few": Bug("column >= end", "column >= end - VEC", block),
    "padded columns in the statistics": Bug(
        "read_sum<ADD, T, VEC>(from + column",
        "if (column + VEC >= end) sum += Storage<T>::widen(from[end]);\n      read_sum<ADD, T, VEC>(from + column",
        *(padded, "out-of-bounds|"),
    ),
    "the mean of a padded width": Bug("sum / (float)d", "sum / (float)(steps * TEAM * VEC)", block),
    "the variance of a padded width": Bug("squares / (float)d", "squares / (float)((d + 63) / 64 * 64)", warp),
    "rows counted in 32 bits": Bug("row * stride", "(int)row * (int)stride", far, "memory fault|"),
    "the grid's stride forgets the rows of a block": Bug(
        "(long long)gridDim.x * ROWS", "(long long)gridDim.x", warp, "global memory race"
    ),
    "blocks overlap": Bug("(long long)blockIdx.x * ROWS;", "(long long)blockIdx.x;", warp, "global memory race"),
    "every row writes to the first row's statistic": Bug("rstds[row] =", "rstds[0] =", block, "global memory race"),
    "cut in place of rounded": Bug(
        "return __float2bfloat16_rn(value);",
        "return __nv_bfloat16{(unsigned short)(__float_as_uint(value) >> 16)};",
        warp,
    ),
    "eps left out": Bug("squares / (float)d + eps", "squares / (float)d", zeros),
    "eps is no clamp": Bug("rsqrtf(fmaxf(squares, eps))", "rsqrtf(squares)", clamped),
    "squares about zero": Bug(
        "const float centred = (value[i] - pivot) - shift;", "const float centred = value[i];", block
    ),
    "the mean in one part": Bug("(value[i] - pivot) - shift", "value[i] - (pivot + shift)", conditioned),
    "the shift is the mean": Bug("shifts[row] = shift", "shifts[row] = shift + pivot", block),
    "stale shared memory": Bug(
        "held.put(step, column, value);", "if (step) held.put(step, column, value);", shared, "uninit"
    ),
    "the row in shared memory overlaps": Bug(
        "keep<T, VEC>(row + column", "keep<T, VEC>(row + column / 2 / VEC * VEC", shared, RACE
    ),
    "the sum is not rounded": Bug("stored_as<T>(value[i] + other[i])", "(value[i] + other[i])", fused),
    "rounded before the gain although it was not asked": Bug("if (cast_first)", "if (true)", warp),
    "not rounded before the gain": Bug("if (cast_first)", "if (false)", rounded_first),
    "the gain one element late": Bug(
        "read<W, VEC>(gain + column", "read<W, VEC>(gain + column + VEC", warp, "out-of-bounds"
    ),
    "the gain of the first vector": Bug("read<W, VEC>(gain + column", "read<W, VEC>(gain", warp),
    "a load across a vector boundary": Bug(
        "read_sum<ADD, T, VEC>(from + column", "read_sum<ADD, T, VEC>(from + 1 + column", warp, "misaligned"
    ),
    "groups and rows exchanged": Bug(
        "row / group * group_stride + row % group",
        "row % group * group_stride + row / group",
        heads,
        "global memory race",
    ),
    "merged without the distance of the means": Bug(
        "chunk_squares + apart * apart * (count * more / both)", "chunk_squares", split
    ),
    "a merged mean without weights": Bug("apart * (more / both)", "apart * 0.5f", split),
    "slices weigh the same": Bug(
        "shift += of_row[2 * s] * ((float)min(slice_width, d - s * slice_width) / (float)d)",
        "shift += of_row[2 * s] / (float)slices",
        split,
    ),
    "the last slice left out": Bug("for (int s = 0; s < slices; s++)", "for (int s = 0; s < slices - 1; s++)", split),
    "the pivot of the slice": Bug("pivot = one[0];", "pivot = Storage<T>::widen(from[start]);", split, turn=1),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_bug_is_found(bug: Bug) -> None:
    with pytest.raises((KernelFault, AssertionError)) as caught:
        bug.run(Emulator(checked=True, mutate=bug.applied))
    if bug.report and caught.type is KernelFault:
        assert re.search(bug.report, str(caught.value))
    # A bug that the emulator should name is not one that only the numbers may show.
    assert (caught.type is KernelFault) == bool(bug.report) or bug.report.endswith("|")


@pytest.mark.parametrize("run", dict.fromkeys(bug.run for bug in BUGS.values()), ids=lambda run: run.__name__)
def test_without_a_bug_nothing_is_found(run: object) -> None:
    assert callable(run)
    run(Emulator(checked=True))
