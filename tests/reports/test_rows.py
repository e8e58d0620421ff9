from types import ModuleType

import pytest

from normlab.digits import cell
from normlab.plots import PLOTS
from normlab.reports._rows import as_precise, grids


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.23456, "1.23"), (0.05, "0.0500"), (12345.6, "12346"), (123.4, "123"), (1e-9, "1.00e−09"), (-2.0, "−2.00")],
)
def test_rounding(value: float, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (-0.4712, 0.199, "−0.471"),
        (0.00264, 0.04, "0.003"),
        (12.3, 8.0, "12.3"),
        (5.0, 0.0, "5.00"),
        (5e-6, 1e-8, "5.00e−06"),
    ],
)
def test_an_effect_has_the_digits_that_its_interval_allows(value: float, width: float, text: str) -> None:
    assert as_precise(value, width) == text


def test_a_table_for_each_panel_with_a_column_a_depth(sim: ModuleType) -> None:
    plot, table = PLOTS["stream_growth"], sim.sweep(depths=(2, 4), seeds=2)
    post, pre = grids(plot, plot.aggregated(table))
    assert (post.caption, pre.columns) == ("Growth of the residual stream: post", ("L = 2", "L = 4"))
    assert [heading for heading, _ in pre.rows] == ["0", "1", "2", "3", "4"]
    assert pre.rows[4][1][0].mean == "" and pre.rows[0][1][0].mean == "1.00"


def test_last_layers_have_a_row_a_depth_and_a_column_a_kind(sim: ModuleType) -> None:
    plot, table = PLOTS["last_gradient"], sim.sweep(depths=(2, 4), seeds=2)
    (grid,) = grids(plot, plot.aggregated(table))
    assert grid.columns == ("post", "pre") and [heading for heading, _ in grid.rows] == ["2", "4"]
