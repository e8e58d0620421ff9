"""Rows beyond 2³¹ elements, rows of a million elements, and a residual that is added first."""

import pytest
import torch
from cuemu.harness import SCHEDULES, Emulator
from cuemu.memory import Sparse
from cuemu.norms import Norm, error_in_ulp, forward, nan_like, reference

from normlab.cupy_kernels import DEVICES, Request, plan

pytestmark = pytest.mark.needs("compiler")

ROWS, WIDTH = 2**20 + 1, 4096  # 2^32 elements and a row more


@pytest.mark.parametrize("statistic", ["rms", "layer"])
def test_the_last_row_beyond_2_to_the_32_elements(statistic: str) -> None:
    last = torch.randn(WIDTH, generator=torch.Generator().manual_seed(0)).bfloat16()
    x, y = (Sparse(ROWS * WIDTH, torch.bfloat16) for _ in range(2))
    x.values[-WIDTH:] = last
    chosen = plan(Request("norm_forward", "bf16", "bf16", ROWS, WIDTH, 8, statistic), DEVICES["sm_90"])
    scalars = {f"{of}_{name}": 0 for of in "xy" for name in ("group", "group_stride")}
    scalars |= {
        "x_stride": WIDTH,
        "y_stride": WIDTH,
        "rows": ROWS,
        "d": WIDTH,
        "by_length": 0,
        "one_gain": 0,
        "cast_first": 0,
    }
    Emulator(blocks=(ROWS - 1, 1)).run(chosen, {**scalars, "x": x, "y": y, "eps": 1e-5})
    exact = reference(Norm(statistic), last.unsqueeze(0))[0][0]
    assert error_in_ulp(y.values[-WIDTH:].clone(), exact, 2.0**-10) <= 0.52


def test_rows_that_are_far_apart() -> None:
    apart = 2**31 + 8
    x = Sparse(apart + 64, torch.float32)
    x.values[:64], x.values[apart : apart + 64] = 3.0, -2.0
    y = torch.full((2, 64), torch.nan)
    chosen = plan(Request("norm_forward", "f32", "f32", 2, 64, 4, "rms"), DEVICES["sm_90"])
    scalars = {"x_stride": apart, "x_group": 0, "x_group_stride": 0, "y_stride": 64, "y_group": 0, "y_group_stride": 0}
    values = {
        **scalars,
        "x": x,
        "y": y,
        "rows": 2,
        "d": 64,
        "eps": 1e-12,
        "by_length": 0,
        "one_gain": 0,
        "cast_first": 0,
    }
    done = Emulator().run(chosen, values)
    torch.testing.assert_close(done["y"], torch.tensor([1.0, -1.0]).unsqueeze(1).expand(2, 64))


@pytest.mark.parametrize("d", [2**20, 2**20 - 1, 100_000])
@pytest.mark.parametrize("statistic", ["rms", "layer"])
def test_split_rows(statistic: str, d: int) -> None:
    norm, x = Norm(statistic), torch.randn(2, d, generator=torch.Generator().manual_seed(d)) + 3
    y = forward(norm, x)["y"]
    assert error_in_ulp(y, reference(norm, x)[0], 1.0) <= 8


def test_a_split_row_is_checked() -> None:
    norm, x = Norm("layer"), torch.randn(1, 17_000) + 3
    results = [forward(norm, x, emulator=Emulator(checked=True))["y"]]
    results += [forward(norm, x, emulator=Emulator(schedule))["y"] for schedule in SCHEDULES]
    assert all(result.equal(results[0]) for result in results)
    assert error_in_ulp(results[0], reference(norm, x)[0], 1.0) <= 8


@pytest.mark.parametrize(("rows", "d", "dtype"), [(3, 16_400, "bf16"), (3, 8_210, "f32"), (40, 2_100, "f16")])
@pytest.mark.parametrize("statistic", ["rms", "layer"])
def test_rows_in_shared_memory(rows: int, d: int, dtype: str, statistic: str) -> None:
    kind = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16}[dtype]
    norm, x = Norm(statistic), (torch.randn(rows, d, generator=torch.Generator().manual_seed(d)) - 0.5).to(kind)
    offset = 1 if dtype == "f16" else 0  # narrow vectors: 2100 elements one by one are more than registers hold
    y = forward(norm, x, emulator=Emulator(checked=True, offsets={"x": offset}))["y"]
    assert error_in_ulp(y, reference(norm, x)[0], 1.0) <= (8 if dtype == "f32" else 0.52)
    assert y.equal(forward(norm, x, emulator=Emulator("random", seed=1, offsets={"x": offset}))["y"])


@pytest.mark.parametrize(("rows", "d"), [(9, 96), (3, 1032), (2, 16_400), (1, 40_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fused_add_is_the_add_and_then_the_norm_bit_for_bit(rows: int, d: int, dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, rows, d, generator=torch.Generator().manual_seed(1)).mul(3).to(dtype).unbind()
    norm = Norm("rms" if d % 16 else "layer")
    fused = forward(norm, x, residual=residual, emulator=Emulator(checked=True))
    assert fused["z"].equal(x + residual)
    apart = forward(norm, x + residual)
    assert fused["y"].equal(apart["y"]) and fused["rstds"].equal(apart["rstds"])


def test_statistics_of_every_mapping_agree() -> None:
    x = torch.randn(2, 40_000, generator=torch.Generator().manual_seed(1))
    by = [forward(Norm("layer"), x, device=DEVICES[name])["rstds"] for name in ("sm_80", "sm_86")]
    torch.testing.assert_close(by[0], by[1], rtol=3e-7, atol=0)


def test_a_row_with_a_nonfinite_entry_spoils_no_other() -> None:
    x = torch.randn(5, 64)
    x[2, 3] = torch.inf
    y = forward(Norm("layer"), x, y=nan_like(x))["y"]
    assert y[2].isnan().any() and y[[0, 1, 3, 4]].isfinite().all()
