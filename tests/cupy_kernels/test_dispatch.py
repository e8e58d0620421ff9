"""Which kernel serves a row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normlab import NormlabError
from normlab.cupy_kernels import DEVICES, Device, Request, plan, widest_vector
from normlab.cupy_kernels.spec import PAIRS, STORAGE

H100 = DEVICES["sm_90"]


def request(rows: int, d: int, dtype: str = "bf16", vec: int | None = None) -> Request:
    vec = widest_vector(d, [], STORAGE[dtype][1]) if vec is None else vec
    return Request("norm_forward", dtype, dtype, rows, d, vec, "rms")


MAPPING = {
    # elements of a bf16 row: threads that share it, vectors a thread
    8: (8, 1),
    64: (8, 1),
    72: (16, 1),
    128: (16, 1),
    256: (32, 1),
    264: (32, 2),
    1024: (32, 4),
    2048: (32, 8),
    2056: (128, 4),
    4096: (128, 4),
    8192: (256, 4),
    16384: (256, 8),
    16392: (512, 0),
    100_000: (512, 0),
}


@pytest.mark.parametrize(("d", "mapping"), MAPPING.items())
def test_the_mapping_follows_the_row(d: int, mapping: tuple[int, int]) -> None:
    (launch,) = plan(request(4096, d), H100).launches
    assert (launch.spec.team, launch.spec.per) == mapping
    assert launch.shared_bytes == (0 if launch.spec.per else 2 * d)


@pytest.mark.parametrize(("d", "rows", "why"), [(2**17, 4096, "too long"), (65536, 8, "too few")])
def test_rows_are_split(d: int, rows: int, why: str) -> None:
    chosen = plan(request(rows, d), H100)
    assert [launch.spec.function for launch in chosen.launches] == ["norm_moments", "norm_apply"], why
    assert chosen.scratch["moments"] == 2 * chosen.launches[0].grid


def test_a_few_long_rows_fill_the_device() -> None:
    assert plan(request(1, 2**20), H100).launches[0].grid >= 100


def test_a_device_with_less_shared_memory_splits_sooner() -> None:
    functions = {name: plan(request(4096, 60_000), DEVICES[name]).launches[0].spec.function for name in DEVICES}
    assert functions["sm_90"] == functions["sm_80"] == "norm_forward"
    assert functions["sm_89"] == functions["sm_120"] == "norm_moments"


def test_no_rows_need_no_kernel() -> None:
    assert plan(request(0, 64), H100).launches == ()


@pytest.mark.parametrize("d", [0, -1, 2**31])
def test_a_row_that_no_kernel_serves(d: int) -> None:
    with pytest.raises(NormlabError, match="a row of .* elements: kernels take 1 to"):
        plan(request(2, d, vec=1), H100)


def test_more_blocks_than_a_grid_has() -> None:
    with pytest.raises(NormlabError, match="split the rows"):
        plan(request(2**31, 2**20), H100)


@pytest.mark.parametrize(
    ("d", "address", "stride", "itemsize", "vec"),
    [
        *((1024, 0, 1024, 2, 8), (1024, 0, 1024, 4, 4), (1000, 0, 1000, 2, 8), (1004, 0, 1004, 2, 4)),
        *((77, 0, 77, 2, 1), (1024, 2, 1024, 2, 1), (1024, 8, 1024, 2, 4), (1024, 8, 1024, 4, 2)),
        *((1024, 0, 1028, 2, 4), (1024, 0, 1025, 2, 1), (1, 0, 1, 4, 1), (6, 0, 6, 4, 2)),
    ],
)
def test_the_widest_vector(d: int, address: int, stride: int, itemsize: int, vec: int) -> None:
    assert widest_vector(d, [(address, itemsize, (stride,))], itemsize) == vec


def test_float32_weights_ask_for_no_more_than_16_bytes() -> None:
    assert widest_vector(1024, [(0, 2, (1024,)), (16, 4, ())], 2) == 8
    assert widest_vector(1024, [(0, 2, (1024,)), (4, 4, ())], 2) == 1


@given(
    rows=st.integers(1, 10**6),
    d=st.integers(1, 2**21),
    pair=st.sampled_from(PAIRS),
    device=st.sampled_from(sorted(DEVICES)),
    narrow=st.sampled_from([1, 2, 4, 8]),
)
def test_every_plan_covers_its_rows(rows: int, d: int, pair: tuple[str, str], device: str, narrow: int) -> None:
    vec = min(narrow, widest_vector(d, [], STORAGE[pair[0]][1]))
    on = DEVICES[device]
    if rows * d > 10**11:
        return
    for launch in plan(Request("norm_forward", *pair, rows, d, vec, "layer"), on).launches:
        assert launch.spec.threads % 32 == 0 and launch.spec.threads <= 1024
        assert launch.shared_bytes <= on.shared_bytes - 1024
        if launch.spec.function == "norm_forward":
            assert launch.grid * launch.spec.rows_per_block >= rows
            assert launch.spec.per == 0 or launch.spec.columns >= d
        else:
            slices, width = launch.scalars["slices"], launch.scalars["slice_width"]
            assert launch.grid == rows * slices
            assert (slices - 1) * width < d <= slices * width and width % vec == 0


def test_the_plan_depends_on_nothing_else() -> None:
    assert plan(request(512, 4096), Device(132, 227 * 1024)) == plan(request(512, 4096), H100)
