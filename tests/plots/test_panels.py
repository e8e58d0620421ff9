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


def test_models_that_differ_in_their_encoder_alone_are_no_seeds(sim: ModuleType) -> None:
    two = [sim.cell("pre", 2, 0).assign(kind="encoder-decoder", encoder_depth=depth) for depth in (1, 3)]
    assert panel_columns(pd.concat(two)) == ["encoder_depth"]
    along = [sim.cell("pre", depth, 0).assign(encoder_depth=depth) for depth in (2, 4)]
    assert panel_columns(pd.concat(along)) == []


def test_precisions_are_no_seeds(sim: ModuleType) -> None:
    full, half = sim.cell("pre", 2, 0), sim.cell("pre", 2, 1).assign(dtype="bfloat16")
    assert panel_columns(pd.concat([full, half])) == ["dtype"]
    mixed = full.assign(dtype=full["dtype"].astype(object).mask(full["layer"] == 0, "float64"))
    assert panel_columns(mixed) == []


def test_words() -> None:
    assert panel_label(["placement", "attention", "sublayer"], ["none", "none", "attn"]) == (
        "none · attention none · attention"
    )
