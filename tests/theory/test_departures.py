from functools import cache

import numpy as np
import pandas as pd
import pytest

from normlab.spec import ModelSpec
from normlab.table import concat
from normlab.theory import beside, departures, predict


@cache
def _theory() -> pd.DataFrame:
    specs = [ModelSpec(depth=depth, width=32, placement=name) for name in ("pre", "post") for depth in (4, 8)]
    tables = [predict(spec, 1, 16, detail="averages", jacobian=False) for spec in specs]
    return concat(table.assign(data="random:256", loss="cross-entropy") for table in tables)


def _sweep(seeds: int, noise: float, random: int) -> pd.DataFrame:
    """Theory's values with noise: of a seed and quantity in all its layers, and of each layer."""
    draw, cells = np.random.default_rng(random), []
    for seed in range(seeds):
        theory = _theory()
        shared = {key: draw.standard_normal() for key in zip(theory["site"], theory["role"], strict=True)}
        rows = [shared[key] for key in zip(theory["site"], theory["role"], strict=True)]
        logs = noise * (np.array(rows) + 0.3 * draw.standard_normal(len(theory)))
        added = np.where(theory["quantity"] == "token_overlap", theory["value"] + logs, theory["value"] * np.exp(logs))
        cells.append(theory.assign(value=added, source="measured", model_seed=seed, data_seed=10000 + seed))
    return concat(cells)


@pytest.mark.parametrize(("seeds", "random"), [(3, 0), (5, 1), (5, 2), (16, 3)])
def test_theory_with_noise_leaves_nothing_to_list(seeds: int, random: int) -> None:
    found = departures(_sweep(seeds, 0.1, random), _theory())
    assert found.rows.empty and found.curves > 100 and len(found.nearest) == 1


@pytest.mark.parametrize(("factor", "first"), [(2.0, 1), (0.5, 3)])
def test_a_planted_factor_is_listed_with_its_layers_and_size(factor: float, first: int) -> None:
    table = _sweep(5, 0.05, 0)
    planted = (table["site"] == "update_grad") & (table["quantity"] == "l2") & (table["sublayer"] == "mlp")
    planted &= (table["placement"] == "post") & (table["layer"] >= first)
    found = departures(table.assign(value=table["value"].where(~planted, table["value"] * factor)), _theory()).rows
    assert set(found["placement"]) == {"post"} and set(found["site"]) == {"update_grad"}
    assert sorted(zip(found["depth"], found["first"], found["last"], strict=True)) == [(4, first, 4), (8, first, 8)]
    np.testing.assert_allclose(found["ratio"], factor, rtol=0.1)
    np.testing.assert_allclose(np.abs(np.log(found["ratio"])), found["change"].abs())


def test_a_shift_of_less_than_the_spread_is_not_listed_however_many_seeds_show_it() -> None:
    table = _sweep(24, 0.2, 0)
    planted = (table["site"] == "stream") & (table["quantity"] == "rms")
    found = departures(table.assign(value=table["value"].where(~planted, table["value"] * 1.1)), _theory())
    assert found.rows.empty and set(found.nearest["site"]) == {"stream"}


def test_what_it_says() -> None:
    table = _sweep(5, 0.05, 0)
    assert str(departures(table, _theory())).startswith("No curve leaves theory: ")
    found = departures(table.assign(value=3 * table["value"]), _theory())
    first, *lines = str(found).splitlines()
    assert first.startswith(f"Of {found.curves} curves, {len(found.rows)} stretches of layers leave theory")
    assert len(lines) == 14 and lines[-1] == f"... and {len(found.rows) - 12} more in .rows"


def test_one_seed_lists_nothing() -> None:
    table = _sweep(1, 0.05, 0)
    assert departures(table.assign(value=3 * table["value"]), _theory()).rows.empty


def test_a_table_without_columns_of_a_model_has_no_theory_beside_it() -> None:
    bare = _sweep(1, 0.05, 0).drop(columns=["spec", "placement"])
    assert beside(bare).empty
