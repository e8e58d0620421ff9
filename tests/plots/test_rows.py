import pandas as pd
import pytest

from normlab.plots import PLOTS
from normlab.plots._rows import Rows, with_depth
from normlab.table import COLUMNS

NEEDS = {name: plot.needs for name, plot in PLOTS.items()}


@pytest.mark.parametrize("name", NEEDS)
def test_the_query_gives_the_rows_that_are_drawn(name: str, table: pd.DataFrame) -> None:
    assert len(NEEDS[name].select(table)) > 0
    pd.testing.assert_frame_equal(table.query(NEEDS[name].query), NEEDS[name].select(table))


def test_missing_rows_are_said_in_one_sentence(table: pd.DataFrame) -> None:
    reason = Rows("kurtosis", site="stream").missing(table)
    assert reason.startswith("the table has no rows of kurtosis at the site stream") and "\n" not in reason


def test_rows_without_a_value_give_their_status(table: pd.DataFrame) -> None:
    empty = table.assign(value=float("nan"), status="no residual sum")
    assert "no residual sum" in PLOTS["update_ratio"].missing(empty)
    assert PLOTS["stream_growth"].missing(empty.assign(status="nonfinite")) == ""


def test_the_depth_of_one_recorded_model_is_its_last_layer(table: pd.DataFrame) -> None:
    one = table[(table["depth"] == 8) & (table["model_seed"] == 0) & (table["placement"] == "pre")]
    bare = one[list(COLUMNS)]
    assert with_depth(bare, bare)["depth"].unique().tolist() == [8]
    assert NEEDS["last_gradient"].select(bare)["layer"].tolist() == [8]
