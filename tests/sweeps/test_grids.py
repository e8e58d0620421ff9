"""From axes to specs."""

import pytest

from normlab.errors import SpecError, UnknownNameError
from normlab.spec import ModelSpec
from normlab.sweeps import grid
from normlab.sweeps.grids import specs_of


def test_a_grid_is_the_product_of_its_lists_in_the_given_order():
    specs = grid(placement=["pre", "post"], depth=[2, 4], width=8, norm=["rmsnorm"])
    assert specs == tuple(
        ModelSpec(placement=placement, depth=depth, width=8, norm="rmsnorm")
        for placement in ("pre", "post")
        for depth in (2, 4)
    )


def test_a_tuple_is_one_value():
    (spec,) = grid(placement=("pre", "post"), depth=2, width=8)
    assert spec.placement == ("pre", "post")
    assert len(grid(placement=["pre", ("pre", "post")], depth=2, width=8)) == 2


def test_a_range_is_an_axis_and_repetitions_are_dropped():
    assert [spec.depth for spec in grid(depth=range(1, 4), width=8)] == [1, 2, 3]
    assert len(grid(depth=[2, 2], width=8)) == 1


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"depth": [2, 0], "width": 8}, "depth is 0"),
        ({"depth": 2, "width": [8, 9], "heads": 2}, "width 9 is not divisible by 2 heads"),
        ({"depths": [2], "width": 8}, "no axis 'depths'.*did you mean 'depth'"),
        ({"depth": [], "width": 8}, "depth is an empty list"),
        ({"width": 8}, "needs depth"),
    ],
)
def test_a_wrong_axis_is_named(axes, words):
    with pytest.raises(SpecError, match=words):
        grid(**axes)


def test_an_unknown_placement_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'post'"):
        grid(placement=["pre", "pots"], depth=2, width=8)


def test_a_sweep_takes_one_spec_or_several():
    spec = ModelSpec(depth=2, width=8)
    assert specs_of(spec) == specs_of([spec, spec]) == (spec,)
    with pytest.raises(SpecError, match="at least one spec"):
        specs_of([])
