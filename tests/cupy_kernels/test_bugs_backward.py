"""Bugs that are put into the backward kernels, each of which the tests' own means must find."""

import pytest
import torch
from cuemu.harness import Emulator, KernelFault
from cuemu.mutation import Bug
from cuemu.norms import Norm, error_in_ulp
from cuemu.norms_backward import backward, reference

from normlab.cupy_kernels import Device

pytestmark = pytest.mark.needs("compiler")


def check(norm: Norm, rows: int, d: int, emulator: Emulator, device: Device, eps_matters: bool = False) -> None:
    noise = torch.Generator().manual_seed(rows + d)
    dy, x = torch.randn(rows, d, generator=noise) + 0.25, torch.randn(rows, d, generator=noise) + 0.5
    x = x / 20 if eps_matters else x
    gain = 1 + torch.randn(d, generator=noise) / 2
    done = backward(norm, dy, x, gain, emulator=emulator, device=device)
    for name, exact in zip(("dx", "dgain", "dbias"), reference(norm, dy, x, gain), strict=True):
        if name in done.arrays:
            assert error_in_ulp(done[name], exact, exact.square().mean().sqrt()) <= 8, name


def lanes(emulator: Emulator) -> None:
    check(Norm("layer"), 37, 40, emulator, Device(1, 0))


def block(emulator: Emulator) -> None:
    check(Norm("layer"), 7, 1500, emulator, Device(1, 0))


def many(emulator: Emulator) -> None:
    """More parts than a column's threads."""
    check(Norm("rms"), 9, 1500, emulator, Device(8, 0))


def split(emulator: Emulator) -> None:
    """Five slices a row, and two chunks of rows of which the last is short."""
    check(Norm("layer"), 3, 17_000, emulator, Device(8, 0))


def clamped(emulator: Emulator) -> None:
    check(Norm("l2", eps=1.0), 3, 64, emulator, Device(1, 0), eps_matters=True)


FAULT = "a fault"
BUGS = {
    "dx without the mean of g": Bug("g - level - normed * along", "g - normed * along", block),
    "dx without the part along n": Bug("g - level - normed * along", "g - level", block),
    "a short vector loses its length": Bug("rstd < rsqrtf(eps) ? dot : 0.0f", "dot", clamped),
    "dgain without rstd": Bug("return ((x - pivot) - shift) * rstd;", "return (x - pivot) - shift;", block),
    "dgain of the last row alone": Bug("gain_sum[step][i] += g", "gain_sum[step][i] = g", block),
    "dbias takes the gain": Bug(
        "bias_sum[step][i] += g[step][i];", "bias_sum[step][i] += g[step][i] * factor[i];", lanes
    ),
    "the teams are not added up": Bug("other < TEAMS; other++", "other < 1; other++", lanes),
    "no barrier before the teams are added": Bug(
        "__syncthreads();\n    for (int column", "for (int column", lanes, FAULT
    ),
    "no barrier before the second fold": Bug("if constexpr (TEAMS > 1) __syncthreads();", "", lanes, FAULT),
    "all blocks write the first part": Bug("gain_parts + (long long)blockIdx.x * d", "gain_parts", lanes, FAULT),
    "padded rows enter dgain": Bug("const int end = first + team < rows ? d : 0;", "const int end = d;", lanes, FAULT),
    "no barrier in the column sum": Bug("= sum;\n  __syncthreads();", "= sum;", lanes, FAULT),
    "a share left out of the column sum": Bug("other < 8; other++", "other < 7; other++", many),
    "columns beyond the last": Bug("if (column < d)\n    for", "if (true)\n    for", lanes, FAULT),
    "the sums of one slice": Bug("sums + (row * slices + s) * 2)", "sums + row * slices * 2)", split),
    "a chunk too long": Bug(
        "part * chunk + chunk < rows ? part * chunk + chunk : rows", "part * chunk + chunk", split, FAULT
    ),
    "chunks that overlap": Bug("row = part * chunk;", "row = part;", split),
    "one scratch for two sums": Bug("scratch[1]", "scratch[0]", block),
}
#: Not a bug: team_sum's own barrier makes a second scratch unnecessary. It shows that a bug is what is found.
HARMLESS = {"one scratch for two sums"}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    emulator = Emulator(checked=True, mutate=bug.applied)
    if name in HARMLESS:
        return bug.run(emulator)
    with pytest.raises(KernelFault if bug.report == FAULT else AssertionError):
        bug.run(emulator)


@pytest.mark.parametrize("run", [lanes, block, many, split, clamped], ids=lambda run: run.__name__)
def test_without_a_bug_nothing_is_found(run: object) -> None:
    assert callable(run)
    run(Emulator(checked=True))
