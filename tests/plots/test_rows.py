from types import ModuleType

import pandas as pd
import pytest

from normlab.plots import PLOTS
from normlab.plots._curves import points
from normlab.plots._rows import Rows, with_depth
from normlab.table import COLUMNS

NEEDS = {name: plot.needs for name, plot in PLOTS.items() if plot.of in ("recording", "jacobian")}


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


@pytest.fixture
def uneven(sim: ModuleType) -> pd.DataFrame:
    """An encoder of two blocks and a decoder of four."""
    both = [sim.cell("pre", depth, 0).assign(stack=stack) for stack, depth in (("encoder", 2), ("decoder", 4))]
    table: pd.DataFrame = pd.concat(both, ignore_index=True)
    return table.assign(depth=pd.array([4] * len(table), dtype="Int64"), encoder_depth=2, kind="encoder-decoder")


def test_an_encoder_ends_at_its_own_last_layer(uneven: pd.DataFrame) -> None:
    last = NEEDS["last_gradient"]
    found = last.select(uneven)
    assert dict(zip(found["stack"], found["layer"], strict=True)) == {"encoder": 2, "decoder": 4}
    pd.testing.assert_frame_equal(uneven.query(last.query_of(uneven)), found)


def test_an_encoders_fractions_end_at_one(uneven: pd.DataFrame) -> None:
    placed = points(uneven, NEEDS["stream_growth"], "geometric", x="fraction")
    assert placed.groupby("panel")["x"].max().tolist() == [1.0, 1.0]
    assert "from layer 0 to layer 2 of 2" in PLOTS["stream_growth"].finding(uneven).lower()
