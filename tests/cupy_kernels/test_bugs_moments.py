"""The recorder's kernels with one bug each: the emulator or the numbers must show it."""

import pytest
import torch
from cuemu.harness import Emulator, KernelFault
from cuemu.moments import assert_close, draw, moments, pair, sequence_sums
from cuemu.mutation import Bug

pytestmark = pytest.mark.needs("compiler")


def sequences(emulator: Emulator) -> None:
    x = draw(260, 40).view(2, 130, 40)
    norms = x.double().norm(dim=-1)
    found = sequence_sums(x, norms, emulator)
    torch.testing.assert_close(found[:, 0], x.double().sum(1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[:, 1], (x.double() / norms.unsqueeze(-1)).sum(1), rtol=1e-12, atol=1e-12)


def lossy(emulator: Emulator) -> None:
    x, other = draw(2, 5000), draw(3, 5000)[1:] * 1000
    stored = x + other
    exact = (stored.double() - (x.double() + other.double())).square().sum(-1)
    torch.testing.assert_close(pair(x, other, emulator, stored)["lost"], exact, rtol=1e-12, atol=0)


def long(emulator: Emulator) -> None:
    x = draw(2, 5000) * torch.tensor([[1e20], [1.0]])
    assert_close(moments(x, emulator), x)


def short(emulator: Emulator) -> None:
    x = draw(9, 50) + 3
    assert_close(moments(x, emulator), x)


BUGS = {
    "no common scale": Bug("value[i] * scale.down", "value[i]", long),
    "the merge forgets the distance in M2": Bug("m2 += b.m2 + d * e * na * nb", "m2 += b.m2", short),
    "the merge forgets a term of M3": Bug("+ 3.0 * e * (na * b.m2 - nb * m2)", "", short),
    "the merge forgets a term of M4": Bug("+\n          4.0 * e * (na * b.m3 - nb * m3)", "", short),
    "means are averaged": Bug("mean += e * nb", "mean += d * 0.5", short),
    "the pivot's rounding": Bug("((double)pivot + off) * up", "(double)(pivot + 1e-5f) * up", short),
    "lanes that wrap around": Bug("threadIdx.x % 32 + delta < 32", "true", short),
    "missing elements counted": Bug("if (!(present >> i & 1u)) continue;", "", short),
    "no barrier before the warps are merged": Bug(
        "__syncthreads();\n    if (threadIdx.x == 0)", "if (threadIdx.x == 0)", long, "x"
    ),
    "a step too many": Bug("if (at >= columns) continue;", "if (at >= columns + TEAM * VEC) continue;", short, "x"),
    "a sequence's last chunk too long": Bug(
        "first + chunk < length ? first + chunk : length", "first + chunk", sequences, "x"
    ),
    "tokens left out": Bug("token = first + warp;", "token = first + warp + 1;", sequences),
    "tokens of the first sequence": Bug("sequence * length + token", "sequence * 0 + token", sequences),
    "no barrier before the warps' sums over tokens": Bug(
        "}\n  __syncthreads();\n  double* to", "}\n  double* to", sequences, "x"
    ),
    "a warp's sum over tokens left out": Bug("other < WARPS", "other < WARPS - 1", sequences),
    "all chunks in one place": Bug("parts + share * 2 * d", "parts + sequence * 2 * d", sequences, "x"),
    "no barrier before the losses are read": Bug(
        "__syncthreads();\n    if (threadIdx.x == 0)\n      for (int warp = 1; warp < TEAM / 32; warp++) own +=",
        "if (threadIdx.x == 0)\n      for (int warp = 1; warp < TEAM / 32; warp++) own +=",
        *(lossy, "x"),
    ),
    "the losses of one warp": Bug("warp < TEAM / 32; warp++) own +=", "warp < 1; warp++) own +=", lossy),
    "rows in one place": Bug("moments + row * kMoments", "moments + row", short, "x"),
}
#: Not a bug: what wraps around reaches lanes that nobody reads.
HARMLESS = {"lanes that wrap around"}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    emulator = Emulator(checked=True, mutate=bug.applied)
    if name in HARMLESS:
        return bug.run(emulator)
    with pytest.raises(KernelFault if bug.report else AssertionError):
        bug.run(emulator)
