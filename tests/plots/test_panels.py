from types import ModuleType

import pandas as pd

from normlab.plots._panels import label_rows, panel_columns, panel_label


def test_columns_that_say_nothing_new_name_no_panel(table: pd.DataFrame) -> None:
    """The final norm follows the placement here, and depths and seeds are lines and repetitions."""
    assert panel_columns(table) == ["placement"]


def test_columns_that_split_further_do(sim: ModuleType) -> None:
    both = pd.concat([sim.cell("pre", 2, 0), sim.cell("pre", 2, 0).assign(final_norm="off", width=64)])
    assert panel_columns(both) == ["width"]
    four = pd.concat([both, both.assign(final_norm="off"), both.assign(final_norm="on")])
    assert panel_columns(four) == ["width", "final_norm"]
    assert set(label_rows(four, ["width", "final_norm"])) == {
        f"width {width} · final norm {state}" for width in (64, 128) for state in ("on", "off")
    }


def test_words() -> None:
    assert panel_label(["placement", "attention", "sublayer"], ["none", "none", "attn"]) == (
        "none · attention none · attention"
    )
