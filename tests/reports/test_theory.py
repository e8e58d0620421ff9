"""The section that compares measurement and theory."""

import pandas as pd
import pytest

from normlab.reports._theory import theory_view
from normlab.spec import ModelSpec
from normlab.table import concat
from normlab.theory import predict
from normlab.theory.beside import Beside
from normlab.theory.cases import cases


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    """Theory's own values of two depths, as six seeds that scatter a little."""
    tables = [predict(ModelSpec(depth=depth, width=32), 1, 8, jacobian=False) for depth in (2, 4)]
    theory = concat(tables).assign(source="measured", data="random:256", loss="cross-entropy")
    seeds = [theory.assign(model_seed=s, data_seed=9 + s, value=theory["value"] * 1.02 ** (s - 2.5)) for s in range(6)]
    return concat(seeds)


def beside(measured: pd.DataFrame) -> Beside:
    theory = measured[measured["model_seed"] == 0].assign(source="theory", value=lambda rows: rows["value"] * 1.02**2.5)
    return Beside(cases(measured), theory.drop(columns=["model_seed", "data_seed"]))


def test_where_measurement_follows_theory_nothing_is_listed(measured: pd.DataFrame) -> None:
    view = theory_view(measured, beside(measured))
    assert view.rows == () and view.curves > 50 and view.seeds == 6


def test_a_planted_factor_is_a_line_with_layers_size_and_depths(measured: pd.DataFrame) -> None:
    planted = (measured["role"] == "v") & (measured["layer"] >= 2)
    table = measured.assign(value=measured["value"].where(~planted, 3 * measured["value"]))
    (row,) = theory_view(table, beside(measured)).rows
    assert (row.curve, row.depth, row.layers, row.others) == ("grad_norm of role v, attention", "4", "2–4", "2")
    assert row.change == "3.00 ×" and float(row.spreads) > 10
