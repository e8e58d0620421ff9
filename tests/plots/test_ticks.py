import pytest
from matplotlib.figure import Figure

from normlab.plots._ticks import ScaleLocator, depth_axis, layer_axis, log_axis, scale_text


@pytest.mark.parametrize(("low", "high"), [(0.7, 1.4), (1.0, 9.0), (0.02, 0.11), (1e-9, 1.0), (1e-300, 1e300)])
def test_a_scale_has_three_to_seven_ticks(low: float, high: float) -> None:
    ticks = ScaleLocator().tick_values(low, high)
    assert 3 <= len(ticks) <= 7 and ticks == sorted(ticks)
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)


def test_a_decade_has_more_than_its_ones_twos_and_fives() -> None:
    assert ScaleLocator().tick_values(0.9, 11.0) == [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0]


def test_a_constant_spans_a_factor_of_two() -> None:
    ax = Figure().subplots()
    log_axis(ax, "y")
    ax.margins(y=0)
    ax.plot([1, 2], [1.0, 1.0000001])
    low, high = ax.get_ylim()
    assert high / low == pytest.approx(2) and low * high == pytest.approx(1)


@pytest.mark.parametrize(
    ("value", "text"), [(0.05, "0.05"), (1.0, "1"), (2500.0, "2500"), (1e-7, "10⁻⁷"), (3e12, "3·10¹²"), (1e4, "10⁴")]
)
def test_ticks_read_well(value: float, text: str) -> None:
    assert scale_text(value) == text


def test_depths_that_differ_much_are_spaced_by_doubling() -> None:
    near, far, deep = Figure().subplots(3)
    layer_axis(near, [4, 12])
    layer_axis(far, [2, 64])
    layer_axis(deep, [1000])
    assert (near.get_xscale(), far.get_xscale(), deep.get_xscale()) == ("linear", "symlog", "symlog")
    assert far.get_xticks().tolist() == [0, 1, 2, 4, 8, 16, 32, 64]


def test_many_depths_keep_the_deepest() -> None:
    ax = Figure().subplots()
    depth_axis(ax, range(1, 40))
    ticks = ax.get_xticks().tolist()
    assert len(ticks) <= 9 and ticks[-1] == 39
