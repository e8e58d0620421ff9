from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from normlab.errors import DataError
from normlab.plots import PLOTS
from normlab.plots._curves import curves, points

GROWTH = PLOTS["stream_growth"].needs


def test_one_line_for_each_placement_and_depth(table: pd.DataFrame) -> None:
    lines = list(curves(points(table, GROWTH, "geometric")))
    assert [(line.panel, line.depth) for line in lines] == [
        (placement, depth) for placement in ("post", "pre") for depth in (16, 8, 2)
    ]
    assert lines[0].points["x"].tolist() == list(range(17))


def test_x_is_the_layer_its_share_of_the_depth_or_the_measured_q(table: pd.DataFrame) -> None:
    fraction = points(table, GROWTH, "geometric", x="fraction")
    assert (fraction["x"] * fraction["depth"].astype(float)).tolist() == fraction["layer"].astype(float).tolist()
    q = points(table, GROWTH, "geometric", x="q")
    np.testing.assert_allclose(q["x"], q["centre"] ** 2, rtol=1e-12)


def test_q_belongs_to_the_same_sublayer(table: pd.DataFrame) -> None:
    placed = points(table, PLOTS["update_ratio"].needs, "geometric", x="q")
    attn, mlp = (placed[(placed["sublayer"] == name) & (placed["placement"] == "pre")]["x"] for name in ("attn", "mlp"))
    assert (mlp.to_numpy() > attn.to_numpy()).all()


@pytest.mark.parametrize("x", ["depth", "lyer"])
def test_another_x_is_refused(table: pd.DataFrame, x: str) -> None:
    with pytest.raises(DataError, match="choose layer, fraction or q"):
        points(table, GROWTH, "geometric", x=x)


def test_q_needs_the_mean_square(table: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="x = q needs the stream's mean square"):
        points(table[table["quantity"] != "mean_square"], GROWTH, "geometric", x="q")


def test_theory_of_its_own_table_is_drawn_for_every_kind_that_it_does_not_exclude(sim: ModuleType) -> None:
    table = sim.sweep(depths=(4,), seeds=2)
    theory = sim.cell("pre", 4, 0).drop(columns=["placement", "model_seed"])
    lines = list(curves(points(table, GROWTH, "geometric", theory=theory)))
    assert [(line.panel, line.source) for line in lines] == [
        (panel, source) for panel in ("post", "pre") for source in ("measured", "theory")
    ]


def test_theory_rows_of_the_table_itself_are_a_line_of_their_own(sim: ModuleType) -> None:
    measured = sim.sweep(("pre",), depths=(4,), seeds=2)
    theory = sim.cell("pre", 4, 0).assign(source="theory", model_seed=pd.NA)
    found = points(pd.concat([measured, theory], ignore_index=True), GROWTH, "geometric")
    assert found["source"].value_counts().to_dict() == {"measured": 5, "theory": 5}


def test_theory_of_another_kind_is_not_drawn(sim: ModuleType) -> None:
    table = sim.sweep(("pre",), depths=(4,), seeds=2)
    own, other = sim.cell("pre", 4, 0), sim.cell("post", 4, 0, rate=0.0)
    found = points(table, GROWTH, "geometric", theory=pd.concat([own, other]).assign(source="theory"))
    centres = found[found["source"] == "theory"].sort_values("layer")["centre"]
    np.testing.assert_allclose(centres, GROWTH.select(own).sort_values("layer")["value"])


def test_a_panel_of_one_stack_has_the_theory_of_that_stack(sim: ModuleType) -> None:
    both = [sim.cell("pre", 4, 0).assign(stack=stack) for stack in ("encoder", "decoder")]
    theory = pd.concat([both[0], both[1].assign(value=both[1]["value"] * 3)]).assign(source="theory")
    for stack, factor in zip(both, (1.0, 3.0), strict=True):
        found = points(stack, GROWTH, "geometric", theory=theory).set_index("layer")
        drawn = [found[found["source"] == source]["centre"] for source in ("measured", "theory")]
        np.testing.assert_allclose(drawn[1] / drawn[0], factor)


def test_theory_is_averaged_over_batches_and_bounded_by_what_seeds_spread(sim: ModuleType) -> None:
    table = sim.sweep(("pre",), depths=(4,), seeds=2)
    one, two = (sim.cell("pre", 4, seed).assign(source="theory", sd_log=0.3) for seed in (0, 1))
    found = points(table, GROWTH, "geometric", theory=pd.concat([one, two]))
    theory = found[found["source"] == "theory"].set_index("layer")
    logs = [np.log(GROWTH.select(rows).set_index("layer")["value"]) for rows in (one, two)]
    np.testing.assert_allclose(np.log(theory["centre"]), (logs[0] + logs[1]) / 2)
    sd = np.sqrt(0.09 + (logs[0] - logs[1]) ** 2 / 2)
    np.testing.assert_allclose(np.log(theory["high"] / theory["low"]), 2 * sd)
