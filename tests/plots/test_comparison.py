"""The plots of a comparison draw the rows that they name."""

from pathlib import Path

import pandas as pd
import pytest

from normlab.plots import divergence, draw_comparison, save, stream_ratio
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


def test_the_three_parts_are_three_lines(table: pd.DataFrame) -> None:
    lines = {line.get_label(): line for line in divergence(table).get_lines()}
    assert lines["in all"].get_ydata().tolist() == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert lines["added"].get_ydata().tolist() == pytest.approx([0.01, 0.02, 0.03])
    assert lines["inherited"].get_ydata().tolist()[1:] == pytest.approx([0.01, 0.02])
    assert "exactly zero" in lines  # what the first block inherits has no place on the axis


def test_the_ratio_is_a_line_beside_one(table: pd.DataFrame) -> None:
    lines = stream_ratio(table).get_lines()
    assert lines[0].get_ydata().tolist() == pytest.approx([1.0, 1.1, 1.2, 1.3])
    assert list(lines[-1].get_ydata()) == [1, 1]


def test_there_is_a_panel_for_each_stack_and_no_figure_without_rows(table: pd.DataFrame) -> None:
    figures = draw_comparison(concat([table, table.assign(stack="encoder")]))
    assert set(figures) == {"stream_ratio", "divergence"}
    assert [ax.get_title(loc="left") for ax in figures["divergence"].axes] == ["encoder", "decoder"]
    assert set(draw_comparison(table[table["quantity"] == "ratio"])) == {"stream_ratio"}


def test_equal_streams_can_be_drawn(table: pd.DataFrame, tmp_path: Path) -> None:
    same = table.assign(value=table["value"].where(table["quantity"] == "ratio", 0.0), status="exact-zero")
    for name, figure in draw_comparison(same).items():
        assert save(figure, tmp_path / f"{name}.svg").stat().st_size > 0
