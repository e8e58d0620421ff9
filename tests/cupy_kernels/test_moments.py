"""The recorder's kernels, run by the emulator, against float64."""

from dataclasses import replace

import pytest
import torch
from cuemu.harness import SCHEDULES, Emulator, KernelFault, Outcome
from cuemu.memory import Sparse
from cuemu.mutation import Bug
from cuemu.norms import H100, TORCH, nan_like, placed
from torch import Tensor

from normlab.cupy_kernels import Device, Plan, Request, plan
from normlab.cupy_kernels.calls import SHORT, moments_call
from normlab.cupy_kernels.plan_moments import total_moments

pytestmark = pytest.mark.needs("compiler")

CHECKED = Emulator(checked=True)


def moments(x: Tensor, emulator: Emulator = CHECKED, *, mask: Tensor | None = None) -> Tensor:
    """Return the eight numbers of each row."""
    arrays = {"x": x, "mask": mask, "moments": nan_like(x, len(x), 8, dtype=torch.float64)}
    return emulator.call(moments_call(arrays, address=placed(emulator)), H100)["moments"]


def of_columns(x: Tensor) -> Tensor:
    """Return the eight numbers of each column."""
    rows, d = x.shape
    result = nan_like(x, d, 8, dtype=torch.float64)
    values = {"x": x, "moments": result, "rows": d, "columns": rows, "column_stride": x.stride(0)}
    places = {"x_stride": 1, "x_group": 0, "x_group_stride": 0}
    chosen = plan(Request("tensor_moments", SHORT[x.dtype], SHORT[x.dtype], d, rows, 1), H100)
    return CHECKED.run(chosen, {**values, **places})["moments"]


def pair(x: Tensor, other: Tensor, emulator: Emulator = CHECKED, stored: Tensor | None = None) -> Outcome:
    empty = {"moments": nan_like(x, len(x), 8, dtype=torch.float64), "lost": nan_like(x, len(x), dtype=torch.float64)}
    call = moments_call({"x": x, "other": other, "stored": stored, **empty}, address=placed(emulator))
    return emulator.call(call, H100)


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
    assert_close(of_columns(x), x.T)


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
    found, a, b = pair(x, other)["moments"], x.double(), other.double()
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
    found, of_sum = pair(x, other)["moments"], exact(x.double() + other.double())
    torch.testing.assert_close(found[:, 3] + found[:, 4] + 2 * found[:, 5], of_sum[:, 2], rtol=1e-6, atol=0)


def test_a_pair_with_a_nonfinite_half() -> None:
    x, other = draw(2, 64), draw(3, 64)[1:]
    other[0, 5] = torch.nan
    assert pair(x, other)["moments"][:, [0, 7]].tolist() == [[63, 1], [64, 0]]


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
    done = Emulator(checked=True, counting=True).call(moments_call({"x": x, "moments": out}), H100)
    traffic = done.traffic["tensor_moments.x"]
    assert traffic.read_sectors * 32 == traffic.read_bytes == 8 * 1024 * 2


def tokens(x: Tensor, mask: Tensor | None = None) -> Tensor:
    arrays = {"x": x, "mask": mask, "tokens": nan_like(x, 6, len(x), dtype=torch.float64)}
    return CHECKED.call(moments_call(arrays), H100)["tokens"]


@pytest.mark.parametrize("d", [7, 96, 5000])
def test_what_the_recorder_keeps_of_a_token(d: int) -> None:
    x = draw(5, d)
    found, eight = tokens(x), moments(x)
    assert found[[0, 1, 3, 4]].equal(eight[:, [1, 2, 5, 6]].T)
    assert found[[2, 5]].equal(eight[:, [4, 7]].T.sqrt())


def test_a_token_that_does_not_count() -> None:
    x = draw(4, 40)
    x[1, 3], x[2, 5] = torch.nan, torch.inf
    found = tokens(x, torch.tensor([1, 1, 0, 0], dtype=torch.uint8))
    assert found[4].tolist() == [0, 1, 0, 0]  # the masked token's infinity is nobody's concern
    assert found[[0, 5], 1:].isnan().all() and found[1:4, 1:].eq(0).all() and found[:, 0].isfinite().all()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("d", [61, 640, 5000])
def test_what_a_stored_sum_lost(dtype: str, d: int) -> None:
    x, other = draw(4, d, dtype), draw(5, d, dtype)[1:] * 300
    stored = x + other
    found = pair(x, other, stored=stored)
    exact = (stored.double() - (x.double() + other.double())).square().sum(-1)
    assert exact.min() > 0
    torch.testing.assert_close(found["lost"], exact, rtol=1e-12, atol=0)
    assert found["moments"].equal(pair(x, other)["moments"])


def test_a_sum_whose_terms_are_too_far_apart_for_float64() -> None:
    """Exact in rational numbers: 2^40 + 2^-40 stored as 2^40 has lost 2^-40."""
    x, other = torch.full((1, 8), 2.0**-40), torch.full((1, 8), 2.0**40)
    assert pair(x, other, stored=other)["lost"].item() == 8 * 2.0**-80


def test_a_stored_sum_that_is_not_finite() -> None:
    x, other = draw(3, 96), draw(4, 96)[1:]
    stored = x + other
    stored[1, 2], other[2, 4] = torch.inf, torch.nan
    assert pair(x, other, stored=stored)["lost"].isnan().tolist() == [False, True, True]


def sequence_sums(x: Tensor, norms: Tensor, emulator: Emulator = CHECKED, device: Device = H100) -> Tensor:
    """Return the sums over the tokens, and over their directions, of each sequence of [sequence, token, feature]."""
    length, d = x.shape[1:]
    call = moments_call({"x": x, "norms": norms.flatten()}, length=length)
    chunks = plan(call.request, device).launches[0].scalars["chunks"]
    parts = nan_like(x, len(x), chunks, 2, d, dtype=torch.float64)
    return emulator.call(replace(call, values={**call.values, "parts": parts}), device)["parts"].sum(1)


@pytest.mark.parametrize(("shape", "dtype"), [((2, 200, 77), "f32"), ((3, 70, 520), "bf16"), ((1, 5, 1), "f16")])
def test_sums_over_sequences(shape: tuple[int, int, int], dtype: str) -> None:
    noise = torch.Generator().manual_seed(2)
    scales = torch.logspace(-20 if dtype != "f16" else -2, 20 if dtype != "f16" else 2, shape[1]).view(1, -1, 1)
    x = (torch.randn(shape, generator=noise) * scales).to(TORCH[dtype])
    x[0, 1] = 0
    norms = x.double().norm(dim=-1)
    norms[0, 2] = torch.nan
    exact = x.double()
    exact[0, 2] = 0
    directions = exact / norms.nan_to_num().where(norms > 0, 1).unsqueeze(-1)
    found = sequence_sums(x, norms)
    for number, terms in enumerate((exact, directions)):
        assert ((found[:, number] - terms.sum(1)).abs() <= 1e-14 * terms.abs().sum(1)).all()
    assert sequence_sums(x, norms, Emulator("random", seed=1)).equal(found)
    torch.testing.assert_close(sequence_sums(x, norms, device=Device(400, 0)), found, rtol=1e-12, atol=1e-12 * 1e21)


def test_sums_over_sequences_read_the_tensor_once() -> None:
    x = draw(128, 512, "bf16").view(2, 64, 512)
    call = moments_call({"x": x, "norms": torch.ones(128).double()}, length=64)
    parts = nan_like(x, 2, 1, 2, 512, dtype=torch.float64)
    done = Emulator(checked=True, counting=True).call(replace(call, values={**call.values, "parts": parts}), H100)
    traffic = done.traffic["sequence_sums.x"]
    assert traffic.read_sectors * 32 == traffic.read_bytes == x.numel() * 2
    assert done.traffic["sequence_sums.parts"].written_bytes == 2 * 2 * 512 * 8


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
