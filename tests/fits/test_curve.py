import numpy as np
import pytest

from normlab import fits
from normlab.errors import DataError, UnknownNameError

LAST = "role == 'down' and layer == depth"


@pytest.fixture(scope="module")
def table(simulated):
    return simulated.sweep(depths=(2, 4, 8), seeds=range(4))


def test_a_table_gives_one_curve_a_seed(table):
    found = fits.curves(table, "grad_norm", where=LAST)
    assert found.x.tolist() == [2, 4, 8]
    assert found.seeds == (0, 1, 2, 3)
    row = table.query(f"{LAST} and quantity == 'grad_norm' and depth == 4 and model_seed == 2")
    assert found.y[2, 1] == row["value"].item()


def test_allowed_values_choose_the_same_rows_as_a_query(table):
    by_query = fits.curves(table, "mean_square", x="layer", where="site == 'stream' and depth == 8")
    by_values = fits.curves(table, "mean_square", x="layer", where={"site": "stream", "depth": [8]})
    np.testing.assert_array_equal(by_query.y, by_values.y)
    assert by_query.x.tolist() == list(range(9))


def test_different_things_are_not_mixed(table):
    with pytest.raises(DataError, match=r"several rows at the same depth.*layer"):
        fits.curves(table, "grad_norm", where="role == 'down'")


@pytest.mark.parametrize("y, where, match", [
    ("grad_norms", None, "no row"),
    ("grad_norm", {"role": "up"}, "no row"),
    ("grad_norm", "role = 'up'", "query"),
    ("", None, "no quantity"),
])  # fmt: skip
def test_a_choice_without_rows_is_an_error(table, y, where, match):
    with pytest.raises(DataError, match=match):
        fits.curves(table, y, where=where)


def test_an_unknown_column_is_named(table):
    with pytest.raises(UnknownNameError, match="did you mean 'role'"):
        fits.curves(table, "grad_norm", where={"rle": "down"})
    with pytest.raises(UnknownNameError, match="did you mean 'depth'"):
        fits.curves(table, "grad_norm", x="depths", where=LAST)


def test_what_has_no_value_is_counted_by_status(table):
    broken = table.copy()
    rows = broken.query(f"{LAST} and quantity == 'grad_norm' and depth == 8 and model_seed == 1").index
    broken.loc[rows, "value"] = np.nan
    broken["status"] = broken["status"].cat.add_categories("nonfinite")
    broken.loc[rows, "status"] = "nonfinite"
    found = fits.curves(broken, "grad_norm", where=LAST)
    assert found.left_out == ("1 of 12 rows have status 'nonfinite'",)
    assert fits.curves(found) is found


def test_a_finite_value_of_a_tensor_that_was_not_finite_is_missing(table):
    last = table.query(f"{LAST} and quantity == 'grad_norm'")
    hit = (last["depth"] == 8) & (last["model_seed"] == 1)
    broken = last.assign(status=last["status"].astype(object).mask(hit, "nonfinite"))
    found = fits.curves(broken, "grad_norm")
    assert np.isnan(found.y[1, 2]) and np.isfinite(found.y).sum() == 11
    assert found.left_out == ("1 of 12 rows have status 'nonfinite'",)


def test_a_table_without_status_has_no_bad_rows(table):
    bare = table.query(f"{LAST} and quantity == 'grad_norm'").drop(columns="status")
    assert np.isfinite(fits.curves(bare, "grad_norm").y).all()
    gap = bare.assign(value=bare["value"].where(bare["depth"] != 8))
    assert fits.curves(gap, "grad_norm").left_out == ("4 of 12 rows have no finite value",)


def test_balanced_keeps_common_points_then_complete_seeds():
    y = np.array([[1.0, 2, np.nan], [1, 2, np.nan], [1, 2, 3], [np.nan, 2, 3.5], [1, 2, np.nan]])
    found = fits.curves(([1, 2, 4], y)).balanced()
    assert found.x.tolist() == [1, 2]
    assert found.seeds == (0, 1, 2, 4)
    assert found.left_out == (
        "x 4 left out: fewer than half of the seeds have it",
        "seed 3 left out: no value at some x",
    )


def test_arrays_are_sorted_and_checked():
    assert fits.curves(([4, 1], [8.0, 2.0])).y.tolist() == [[2.0, 8.0]]
    with pytest.raises(DataError, match=r"\[seeds, points\]"):
        fits.curves(([1, 2], [1.0, 2.0, 3.0]))
    with pytest.raises(DataError, match="twice"):
        fits.curves(([1, 1], [1.0, 2.0]))
