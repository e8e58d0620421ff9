"""The recorder's kernels, run by the emulator, against float64."""

import pytest
import torch
from cuemu.harness import SCHEDULES, Emulator, KernelFault
from cuemu.memory import Sparse
from cuemu.mutation import Bug
from cuemu.norms import H100, SHORT, TORCH, nan_like, row_scalars, vector
from torch import Tensor

from normlab.cupy_kernels import Plan, Request, plan
from normlab.cupy_kernels.plan_moments import total_moments

pytestmark = pytest.mark.needs("compiler")

CHECKED = Emulator(checked=True)


def moments(x: Tensor, emulator: Emulator = CHECKED, *, mask: Tensor | None = None, column_stride: int = 1) -> Tensor:
    """Return the eight numbers of each row; with a column stride, of each column."""
    rows, d = x.numel() // x.shape[-1], x.shape[-1]
    vec = vector(emulator, ("x", x), d=d, itemsize=x.element_size()) if column_stride == 1 else 1
    where = row_scalars(x=x) if column_stride == 1 else {"x_stride": 1, "x_group": 0, "x_group_stride": 0}
    if column_stride != 1:
        rows, d = d, rows
    request = Request("tensor_moments", SHORT[x.dtype], SHORT[x.dtype], rows, d, vec)
    values = {"x": x, "mask": mask, "moments": nan_like(x, rows, 8, dtype=torch.float64), "rows": rows, "columns": d}
    return emulator.run(plan(request, H100), {**values, **where, "column_stride": column_stride})["moments"]


def pair(x: Tensor, other: Tensor, emulator: Emulator = CHECKED) -> Tensor:
    rows, d = x.shape
    vec = vector(emulator, ("x", x), ("other", other), d=d, itemsize=x.element_size())
    request = Request("pair_moments", SHORT[x.dtype], SHORT[x.dtype], rows, d, vec)
    values = {"x": x, "other": other, "moments": nan_like(x, rows, 8, dtype=torch.float64), "rows": rows, "columns": d}
    done = emulator.run(plan(request, H100), {**values, **row_scalars(x=x, other=other), "column_stride": 1})
    return done["moments"]


def total(rows: Tensor, emulator: Emulator = CHECKED) -> Tensor:
    values = {"moments": rows, "total": torch.full((8,), torch.nan, dtype=torch.float64), "rows": len(rows)}
    return emulator.run(Plan((total_moments(),)), values)["total"]


def exact(x: Tensor) -> Tensor:
    x = x.double()
    mean = x.mean(-1, keepdim=True)
    powers = [(x - mean).pow(power).sum(-1) for power in (2, 3, 4)]
    count = torch.full_like(mean[..., 0], x.shape[-1])
    return torch.stack([count, mean[..., 0], *powers, x.abs().amax(-1), 0 * count, x.square().sum(-1)], -1)


def assert_close(found: Tensor, x: Tensor) -> None:
    """Check 1e-6 of each number, of the size of its terms where they may cancel."""
    expected = exact(x)
    deviation = (x.double() - x.double().mean(-1, keepdim=True)).abs()
    size = expected.abs().clone()
    size[..., 1] = x.double().square().mean(-1).sqrt()
    size[..., 3] = deviation.pow(3).sum(-1)
    assert ((found - expected).abs() <= 1e-6 * size).all()


def draw(rows: int, d: int, dtype: str = "f32") -> Tensor:
    noise = torch.Generator().manual_seed(rows + d)
    return (torch.randn(rows, d, generator=noise) + torch.rand(rows, 1, generator=noise)).to(TORCH[dtype])


@pytest.mark.parametrize(("rows", "d"), [(5, 1), (3, 7), (9, 96), (6, 1000), (2, 5000), (1, 40_001)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_moments(rows: int, d: int, dtype: str) -> None:
    x = draw(rows, d, dtype)
    found = moments(x)
    assert_close(found, x)
    assert all(moments(x, Emulator(schedule, seed=1)).equal(found) for schedule in SCHEDULES)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e9, 1e30])
def test_moments_over_the_range_of_float32(scale: float) -> None:
    x = draw(3, 256) * scale
    assert_close(moments(x), x)


def test_scales_that_meet_in_one_row() -> None:
    x = draw(2, 512) * torch.logspace(-30, 30, 512)
    assert_close(moments(x), x)


def test_a_mean_of_many_standard_deviations() -> None:
    x = 1000 + 0.1 * draw(3, 4000)
    found = moments(x)
    torch.testing.assert_close(found[:, 2], exact(x)[:, 2], rtol=1e-6, atol=0)


def test_a_constant_row_has_no_variance() -> None:
    found = moments(torch.full((2, 300), 0.1))
    assert found[:, 2].eq(0).all() and found[:, 3:5].abs().max() <= 1e-20


def test_nonfinite_entries_are_counted_and_nothing_else() -> None:
    x = draw(3, 96)
    clean = moments(torch.cat([x[1:2, :40], x[1:2, 42:]], 1))
    x[1, 40], x[1, 41] = torch.nan, -torch.inf
    found = moments(x)
    assert found[:, 6].tolist() == [0, 2, 0] and found[1, 0] == 94
    torch.testing.assert_close(found[1, [1, 2, 7]], clean[0, [1, 2, 7]], rtol=1e-6, atol=1e-9)


def test_masked_rows_count_nowhere() -> None:
    x, mask = draw(4, 96), torch.tensor([1, 0, 1, 0], dtype=torch.uint8)
    found = moments(x, mask=mask)
    assert found[[1, 3]].eq(0).all()
    assert_close(found[[0, 2]], x[[0, 2]])


def test_channels_by_strides() -> None:
    x = draw(50, 12)
    assert_close(moments(x, column_stride=12), x.T)


def test_the_total_is_that_of_all_elements() -> None:
    x = draw(600, 24)
    found = total(moments(x))
    assert_close(found, x.flatten())
    assert all(total(moments(x), Emulator(schedule)).equal(found) for schedule in SCHEDULES)


def test_a_row_with_a_nonfinite_entry_is_left_out_of_the_total() -> None:
    x = draw(4, 24)
    rest = total(moments(x[1:]))
    x[0, 0] = torch.inf
    found = total(moments(x))
    assert found[6] == 1
    torch.testing.assert_close(found[[0, 1, 2]], rest[[0, 1, 2]])


@pytest.mark.parametrize(("rows", "d"), [(5, 1), (3, 77), (6, 1000), (2, 5000)])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_pairs(rows: int, d: int, scale: float) -> None:
    x, other = draw(rows, d) * scale, draw(rows + 1, d)[1:] / scale
    found, a, b = pair(x, other), x.double(), other.double()
    deviations = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    covariance = (deviations[0] * deviations[1]).sum(-1)
    sizes = deviations[0].norm(dim=-1) * deviations[1].norm(dim=-1)
    assert ((found[:, 5] - covariance).abs() <= 1e-6 * sizes).all()
    assert ((found[:, 6] - (a * b).sum(-1)).abs() <= 1e-6 * a.norm(dim=-1) * b.norm(dim=-1)).all()
    torch.testing.assert_close(found[:, 3], deviations[0].square().sum(-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(found[:, 4], deviations[1].square().sum(-1), rtol=1e-6, atol=0)


def test_the_variance_of_a_sum() -> None:
    """variance(sum) = variance(x) + variance(other) + 2 covariance."""
    x, other = draw(4, 320), draw(5, 320)[1:]
    found, of_sum = pair(x, other), exact(x.double() + other.double())
    torch.testing.assert_close(found[:, 3] + found[:, 4] + 2 * found[:, 5], of_sum[:, 2], rtol=1e-6, atol=0)


def test_a_pair_with_a_nonfinite_half() -> None:
    x, other = draw(2, 64), draw(3, 64)[1:]
    other[0, 5] = torch.nan
    assert pair(x, other)[:, [0, 7]].tolist() == [[63, 1], [64, 0]]


def test_a_row_of_more_than_2_to_the_31_elements_by_strides() -> None:
    """Three elements, 2^31 apart."""
    apart = 2**31
    x = Sparse(2 * apart + 1, torch.float32)
    x.values[0], x.values[apart], x.values[2 * apart] = 1.0, 2.0, 6.0
    request = Request("tensor_moments", "f32", "f32", 1, 3, 1)
    values = {"x": x, "rows": 1, "columns": 3, "x_stride": 1, "x_group": 0, "x_group_stride": 0}
    result = torch.full((1, 8), torch.nan, dtype=torch.float64)
    done = Emulator().run(plan(request, H100), {**values, "column_stride": apart, "moments": result})
    torch.testing.assert_close(done["moments"][0, :3], torch.tensor([3.0, 3.0, 14.0]).double())


def test_a_tensor_is_read_once() -> None:
    x, out = draw(8, 1024, "bf16"), torch.full((8, 8), torch.nan, dtype=torch.float64)
    chosen = plan(Request("tensor_moments", "bf16", "bf16", 8, 1024, 8), H100)
    values = {"x": x, "moments": out, "rows": 8, "columns": 1024, "column_stride": 1, **row_scalars(x=x)}
    traffic = Emulator(checked=True, counting=True).run(chosen, values).traffic["tensor_moments.x"]
    assert traffic.read_sectors * 32 == traffic.read_bytes == 8 * 1024 * 2


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
