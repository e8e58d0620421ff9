from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from normlab.plots import PLOTS
from normlab.plots._words import change

#: The plots of a sweep's table.
SWEPT = {name: plot for name, plot in PLOTS.items() if plot.of in ("recording", "jacobian")}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ([1.01, 1.0, 1.0], "stays between 1.00 and 1.01"),
        ([1.0, 1.0001], "stays at 1.00"),
        ([1.0, 2.0, 5.2], "grows 5.20-fold (from 1.00 to 5.20)"),
        ([2.0, 1.0, 0.5], "falls 4.00-fold (from 2.00 to 0.500)"),
        ([1.0, 1.2], "grows by 20 % (from 1.00 to 1.20)"),
        ([1.0, 3.0, 1.0], "ends within 5 % of where it starts (from 1.00 to 1.00, up to 3.00 at layer 5)"),
        (
            [1.0, 9.0, 0.1, 2.0],
            "grows 2.00-fold (from 1.00 to 2.00, down to 0.100 at layer 6 and up to 9.00 at layer 5)",
        ),
        ([1e-5, 3e-5], "grows 3.00-fold (from 1.00e−05 to 3.00e−05)"),
        ([1.0, np.nan], "goes from 1.00 to no finite value"),
        ([np.nan, np.nan], "has no finite value"),
        ([1.0, np.inf, 2.0], "grows 2.00-fold (from 1.00 to 2.00)"),
        ([1.0, np.inf, 9.0, -np.inf, 2.0], "grows 2.00-fold (from 1.00 to 2.00, up to 9.00 at layer 6)"),
    ],
)
def test_a_change_in_words(path: list[float], words: str) -> None:
    assert change(path, range(4, 4 + len(path))) == words


def test_the_finding_has_the_numbers_of_the_plot(sim: ModuleType, table: pd.DataFrame) -> None:
    found = PLOTS["stream_growth"].finding(table)
    assert found.startswith("From layer 0 to layer 16 of 16, the stream's rms stays at 1.00 in post; grows")
    assert "pre: too few seeds for a law (all 4 prefer q = a + b·ℓ)." in found
    assert "pre: q = 1.0" in PLOTS["stream_growth"].finding(sim.sweep(depths=(16,), seeds=5))


def test_what_the_input_is_said_to_be_holds_of_trained_gains_too() -> None:
    assert "where these are all one it is flat" in PLOTS["input_scale"].explains


def test_a_slope_comes_with_its_interval(table: pd.DataFrame) -> None:
    found = PLOTS["last_gradient"].finding(table)
    assert "From depth 2 to depth 16" in found and "in pre, log-log slope −0." in found and "over 4 seeds" in found


@pytest.mark.parametrize("name", SWEPT)
def test_many_kinds_are_summed_up(name: str, many: pd.DataFrame) -> None:
    found = PLOTS[name].finding(many)
    what = "kinds of models" if PLOTS[name].needs.last else "curves"
    assert found.startswith(f"Over {40 if PLOTS[name].needs.apart else 20} {what}")


@pytest.mark.parametrize("name", SWEPT)
def test_a_finding_is_one_line_for_any_table(name: str, sim: ModuleType, table: pd.DataFrame) -> None:
    broken = table.assign(value=np.nan, status="nonfinite")
    for any_table in (sim.cell("pre", 1, 0), sim.sweep(depths=(3,), seeds=1), broken):
        said = PLOTS[name].finding(any_table)
        assert said.endswith(".") and "\n" not in said and "nan" not in said


def test_a_caption_says_how_seeds_became_bands(sim: ModuleType, table: pd.DataFrame) -> None:
    assert PLOTS["input_scale"].caption(table) == (
        "Line: geometric mean over 4 seeds; band: 95 % Student t interval of the mean logarithm."
    )
    assert PLOTS["token_overlap"].caption(table).startswith("Line: mean over 4 seeds")
    assert PLOTS["last_gradient"].caption(sim.cell("pre", 4, 0)) == "One seed, so no bars."
