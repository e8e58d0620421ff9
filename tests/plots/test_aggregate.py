import numpy as np
import pandas as pd
import pytest
from scipy import stats

from normlab.plots._aggregate import aggregate


def rows(values: list[float], status: list[str] | None = None) -> pd.DataFrame:
    return pd.DataFrame({"layer": 1, "value": values, "status": status or ["ok"] * len(values)})


def test_the_band_is_the_t_interval_of_the_mean_of_logs() -> None:
    values = [1.0, 2.0, 5.0, 3.0]
    found = aggregate(rows(values), ["layer"], "geometric").iloc[0]
    expected = stats.ttest_1samp(np.log(values), 0.0).confidence_interval(0.95)
    assert found["centre"] == pytest.approx(stats.gmean(values))
    assert np.log([found["low"], found["high"]]) == pytest.approx(list(expected))
    assert (found["smallest"], found["largest"]) == pytest.approx((1.0, 5.0))


def test_an_arithmetic_mean_takes_negative_values_and_zero() -> None:
    found = aggregate(rows([-1.0, 0.0, 4.0]), ["layer"], "arithmetic").iloc[0]
    expected = stats.ttest_1samp([-1.0, 0.0, 4.0], 0.0).confidence_interval(0.95)
    assert (found["centre"], found["low"], found["high"]) == pytest.approx((1.0, *expected))


def test_one_seed_has_no_band() -> None:
    found = aggregate(rows([3.0]), ["layer"], "geometric").iloc[0]
    assert found["centre"] == pytest.approx(3.0) and np.isnan(found["low"]) and found["seeds"] == 1


@pytest.mark.parametrize(("average", "low"), [("arithmetic", 2.2), ("geometric", 3 * np.exp(-0.8 / 3))])
def test_one_seed_is_bounded_by_the_error_of_its_own_estimate(average: str, low: float) -> None:
    found = aggregate(rows([3.0]).assign(se=0.4), ["layer"], average).iloc[0]
    assert found["low"] == pytest.approx(low) and found["estimated"]
    several = aggregate(rows([3.0, 4.0]).assign(se=0.4), ["layer"], average).iloc[0]
    assert several["high"] > 7 and not several["estimated"]


@pytest.mark.parametrize(
    ("values", "status", "column"),
    [
        ([1.0, np.nan, 2.0], ["ok", "nonfinite", "ok"], "nonfinite"),
        ([1.0, np.inf, 2.0], ["ok", "ok", "ok"], "nonfinite"),
        ([1.0, 0.0, 2.0], ["ok", "exact-zero", "ok"], "zeros"),
    ],
)
def test_a_seed_without_a_logarithm_leaves_a_gap_that_is_counted(
    values: list[float], status: list[str], column: str
) -> None:
    found = aggregate(rows(values, status), ["layer"], "geometric").iloc[0]
    assert np.isnan(found["centre"]) and found[column] == 1 and found["seeds"] == 2


def test_a_row_without_a_value_for_another_reason_does_not_count() -> None:
    found = aggregate(rows([2.0, np.nan], ["ok", "parallel"]), ["layer"], "geometric").iloc[0]
    assert found["centre"] == pytest.approx(2.0) and found["seeds"] == 1
