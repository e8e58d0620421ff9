"""The plots of a comparison draw the rows that they name."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text

from normlab.errors import DataError
from normlab.plots import PLOTS, divergence, draw, save, skipped, stream_ratio, write_plots
from normlab.plots._style import SOFT
from normlab.table import concat, from_rows


@pytest.fixture
def table() -> pd.DataFrame:
    def row(layer: int, quantity: str, value: float) -> dict[str, object]:
        sublayer = "mlp" if layer else "embed"
        place = {"stack": "decoder", "layer": layer, "sublayer": sublayer, "site": "stream"}
        return {**place, "quantity": quantity, "value": value, "status": "ok" if value else "exact-zero"}

    rows = [row(layer, "ratio", 1.0 + layer / 10) for layer in range(4)]
    rows += [row(layer, "divergence", 0.01 * (layer + 1)) for layer in range(4)]
    rows += [row(layer, "added", 0.01 * layer) for layer in (1, 2, 3)]
    rows += [row(layer, "inherited", 0.01 * (layer - 1)) for layer in (1, 2, 3)]
    return from_rows(rows)


def _entries(ax: Axes) -> tuple[list[Text], list[Line2D]]:
    legend = ax.get_legend()
    assert legend is not None
    return legend.get_texts(), legend.get_lines()


def test_the_three_parts_are_three_lines(table: pd.DataFrame) -> None:
    ax = divergence(table)
    lines = {line.get_label().removesuffix(", median token"): line for line in ax.get_lines()}
    assert lines["in all"].get_ydata().tolist() == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert lines["added"].get_ydata().tolist() == pytest.approx([0.01, 0.02, 0.03])
    assert lines["inherited"].get_ydata().tolist()[1:] == pytest.approx([0.01, 0.02])
    assert "exactly zero" in lines  # what the first block inherits has no place on the axis
    legend = {text.get_text(): line for text, line in zip(*_entries(ax), strict=True)}
    assert legend["exactly zero"].get_color() == SOFT and "median" not in ax.get_ylabel()
    assert lines["in all"].get_markevery() == [0, 1, 2, 3] and lines["added"].get_markevery() == [0, 1, 2]
    (zero,) = [line for line in ax.get_lines() if line.get_marker() == "v"]
    assert (list(zero.get_xdata()), zero.get_color()) == ([1], lines["inherited"].get_color())


def test_the_ratio_is_a_line_beside_one(table: pd.DataFrame) -> None:
    ax = stream_ratio(table)
    assert ax.get_lines()[0].get_ydata().tolist() == pytest.approx([1.0, 1.1, 1.2, 1.3])
    assert list(ax.get_lines()[-1].get_ydata()) == [1, 1] and ax.get_yscale() == "linear"
    assert stream_ratio(table.assign(value=table["value"] * 10)).get_yscale() == "log"


def test_the_axis_of_equal_streams_is_not_all_rounding(table: pd.DataFrame) -> None:
    low, high = stream_ratio(table.assign(value=1.0 + 1e-7 * table["layer"].astype(float))).get_ylim()
    assert low < 0.99 and high > 1.01


def test_the_band_of_a_ratio_is_its_standard_error(table: pd.DataFrame) -> None:
    (band,) = stream_ratio(table.assign(se=0.05)).collections
    (path,) = band.get_paths()
    assert {*path.vertices[:, 1].round(9)} == {
        round(1 + layer / 10 + way, 9) for layer in range(4) for way in (-0.05, 0.05)
    }


def test_there_is_a_panel_for_each_stack_and_no_figure_without_rows(table: pd.DataFrame, tmp_path: Path) -> None:
    both = draw(concat([table, table.assign(stack="encoder")]), "divergence")
    assert [ax.get_title(loc="left") for ax in both.axes] == ["encoder", "decoder"]
    written = write_plots(table[table["quantity"] == "ratio"], tmp_path, formats=("svg",))
    assert [path.name for path in written] == ["stream_ratio.svg"]


def test_equal_streams_can_be_drawn(table: pd.DataFrame, tmp_path: Path) -> None:
    same = table.assign(value=table["value"].where(table["quantity"] == "ratio", 0.0), status="exact-zero")
    for name in ("stream_ratio", "divergence"):
        assert save(draw(same, name), tmp_path / f"{name}.svg").stat().st_size > 0
    assert "▾: exactly zero. Layer 0" in PLOTS["divergence"].caption(same)


def test_the_words_speak_of_no_seeds_and_name_layer_0(table: pd.DataFrame) -> None:
    assert PLOTS["divergence"].caption(table).startswith("Layer 0: the embedding.")
    assert PLOTS["stream_ratio"].caption(table) == (
        "Layer 0: the embedding. Band: one standard error, where there are several seeds."
    )
    found = PLOTS["stream_ratio"].finding(table)
    assert found == "From layer 0 to layer 3 of 3, B's stream over A's grows by 30 % (from 1.00 to 1.30)."


def test_only_plots_of_what_was_measured_are_said_to_be_missing(table: pd.DataFrame, small: pd.DataFrame) -> None:
    assert set(skipped(table[table["quantity"] == "ratio"])) == {"divergence"}
    recorded = small[~small["quantity"].isin(["lyapunov", "singular_value"])]
    assert skipped(recorded) == {} and set(skipped(recorded[recorded["site"] != "update"])) == {"update_ratio"}
    assert set(skipped(small[small["quantity"] == "lyapunov"])) == {"singular_values"}


def test_a_matrix_is_drawn_in_another_way(table: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="norm_jacobian cannot be drawn: it draws a matrix.*normlab jacobian --part"):
        draw(table, "norm_jacobian")
