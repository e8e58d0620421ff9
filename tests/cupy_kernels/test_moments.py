"""The recorder's moments of each row, run by the emulator, against float64."""

import pytest
import torch
from cuemu.harness import SCHEDULES, Emulator
from cuemu.memory import Sparse
from cuemu.moments import assert_close, draw, exact, moments, of_columns, tokens, total
from cuemu.norms import H100

from normlab.cupy_kernels import Request, plan
from normlab.cupy_kernels.calls import moments_call

pytestmark = pytest.mark.needs("compiler")


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
