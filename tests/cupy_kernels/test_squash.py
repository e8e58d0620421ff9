"""DyT and Derf, run by the emulator, against automatic differentiation in float64."""

import pytest
import torch
from cuemu.harness import SCHEDULES, Emulator, KernelFault, Outcome
from cuemu.mutation import Bug
from cuemu.norms import TORCH, error_in_ulp
from cuemu.squash import reference, run
from torch import Tensor

from normlab.cupy_kernels import Device
from normlab.cupy_kernels.spec import PAIRS

pytestmark = pytest.mark.needs("compiler")

FEW = Device(1, 0)  # several rows a chunk


def draw(rows: int, d: int, dtype: str, weight: str) -> tuple[Tensor, Tensor, dict[str, Tensor | None]]:
    noise = torch.Generator().manual_seed(rows * d)
    x, dy = (torch.randn(rows, d, generator=noise).mul(2).to(TORCH[dtype]) for _ in range(2))
    gain, bias = (1 + torch.randn(d, generator=noise).to(TORCH[weight]) / 2 for _ in range(2))
    numbers = {"alpha": torch.tensor([0.75]).to(TORCH[weight]), "shift": torch.tensor([0.25]).to(TORCH[weight])}
    return x, dy, {"gain": gain, "bias": bias, **numbers}


def both(kind: str, x: Tensor, weights: dict[str, Tensor | None], dy: Tensor, emulator: Emulator) -> Outcome:
    arrays = run(kind, x, weights, emulator=emulator, device=FEW).arrays
    return Outcome({**arrays, **run(kind, x, weights, dy, emulator=emulator, device=FEW).arrays})


def assert_close(done: Outcome, kind: str, x: Tensor, weights: dict[str, Tensor | None], dy: Tensor) -> None:
    """Check 0.52 units in the last place where storage rounds and 8 in float32, of terms that may cancel."""
    exact = reference(kind, x, weights, dy)
    assert set(done.arrays) == set(exact) - ({"dshift"} if kind == "tanh" else set())
    for name, array in done.arrays.items():
        rounded, terms = array.dtype != torch.float32, exact[name].abs()
        # dalpha and dshift are sums over all elements of either sign.
        size = terms.square().mean().sqrt() if name in ("y", "dgain", "dbias") else terms * 0
        size = torch.tensor(float(x.numel()) ** 0.5) if name in ("dalpha", "dshift") else size
        error = error_in_ulp(array, exact[name], size * 2.0**-8 if rounded else size)
        # x enters f' by its rounded multiple: the error of u, times u, is dx's relative error.
        assert error <= (0.52 if rounded else 8 if name != "dx" else 64), name


@pytest.mark.parametrize("kind", ["tanh", "erf"])
@pytest.mark.parametrize(("dtype", "weight"), PAIRS)
def test_each_pair_of_types(kind: str, dtype: str, weight: str) -> None:
    x, dy, weights = draw(7, 264, dtype, weight)
    assert_close(both(kind, x, weights, dy, Emulator(checked=True)), kind, x, weights, dy)


@pytest.mark.parametrize("kind", ["tanh", "erf"])
@pytest.mark.parametrize("d", [1, 77, 3000])
def test_widths_and_schedules(kind: str, d: int) -> None:
    x, dy, weights = draw(9, d, "f32", "f32")
    done = both(kind, x, weights, dy, Emulator(checked=True))
    assert_close(done, kind, x, weights, dy)
    for schedule in SCHEDULES:
        again = both(kind, x, weights, dy, Emulator(schedule, seed=1))
        assert all(again[name].equal(array) for name, array in done.arrays.items())


def test_without_gain_and_bias() -> None:
    x, dy, weights = draw(5, 64, "bf16", "f32")
    weights = {**weights, "gain": None, "bias": None}
    assert_close(both("tanh", x, weights, dy, Emulator(checked=True)), "tanh", x, weights, dy)


def test_saturation_and_no_rows() -> None:
    _, _, weights = draw(2, 64, "f32", "f32")
    weights = {**weights, "bias": None, "gain": None}
    x = torch.full((2, 64), 1e4)
    assert run("tanh", x, weights)["y"].eq(1).all()
    assert run("tanh", x, weights, torch.ones_like(x))["dx"].eq(0).all()
    assert run("erf", torch.empty(0, 64), weights).arrays == {}


def steep(emulator: Emulator) -> None:
    """DyT far into saturation, where its slope is small, with columns missing in the last warp."""
    x, dy, weights = draw(10, 77, "bf16", "f32")
    assert_close(both("tanh", x * 2, weights, dy, emulator), "tanh", x * 2, weights, dy)


BUGS = {
    "the slope of the other function": Bug("(SQUASH == ERF) return 1.1", "(SQUASH == TANH) return 1.1", steep),
    "a slope that cancels": Bug("4.0f * e / ((1.0f + e) * (1.0f + e))", "1.0f - tanhf(u) * tanhf(u) + 0.0f * e", steep),
    "alpha left out of dx": Bug("g[i] *= argument.alpha;", "", steep),
    "threads beyond the last column leave early": Bug(
        "const Argument<W> argument(alpha, shift);\n  float factor[VEC] = {}",
        "if (column >= d) return;\n  const Argument<W> argument(alpha, shift);\n  float factor[VEC] = {}",
        *(steep, "exited"),
    ),
    "columns beyond the last": Bug("column >= d ? first : ", "", steep, "global memory race|out-of-bounds"),
    "a chunk too long": Bug(
        "first + chunk < rows ? first + chunk : rows", "first + chunk", steep, "global memory race|out-of-bounds"
    ),
    "every block writes the first part": Bug("alpha_parts[blockIdx.x]", "alpha_parts[0]", steep, "global memory race"),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_bug_is_found(bug: Bug) -> None:
    emulator = Emulator(checked=True, mutate=bug.applied)
    with pytest.raises(KernelFault if bug.report else AssertionError, match=bug.report or None):
        bug.run(emulator)


def test_without_a_bug_nothing_is_found() -> None:
    steep(Emulator(checked=True))
