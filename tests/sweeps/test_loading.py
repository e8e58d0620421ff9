"""Reading runs and tables."""

import json

import pandas as pd
import pytest

from normlab import table
from normlab.data import Random
from normlab.errors import DataError, RunError, UnknownNameError
from normlab.norms import NORMS
from normlab.sweeps import grid, load, loading, read_run, sweep


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run and its table."""
    folder = tmp_path_factory.mktemp("runs") / "x"
    specs = grid(depth=[1, 2, 10], width=8, norm=["layernorm", "rmsnorm"])
    return folder, sweep(specs, seeds=range(2), data=Random(2, 8), out=folder, jobs=1)


def test_the_joined_table_is_in_key_order_and_complete(run):
    folder, frame = run
    assert table.ordered(frame).equals(frame)
    cells = table.concat(table.read_csv(path) for path in (folder / "cells").iterdir())
    assert cells.equals(frame)
    assert load(folder).equals(frame) and load(str(folder / "results.csv.gz")).equals(frame)


@pytest.mark.parametrize(
    "where",
    [
        {"depth": [1, 10], "norm": "rmsnorm"},
        {"depth": 2, "quantity": "loss"},
        "depth == 2 and quantity == 'loss'",
        "norm == 'rmsnorm' and (layer == 1 or depth > 2)",
        "depth + layer > 3",
        {"depth": 77},
    ],
)
def test_a_condition_on_a_run_is_that_condition_on_its_table(run, where):
    folder, frame = run
    asked = frame.query(where) if isinstance(where, str) else frame
    for name, value in where.items() if isinstance(where, dict) else ():
        asked = asked[asked[name].isin(value if isinstance(value, list) else [value])]
    found = load(folder, where)
    assert found.to_csv() == asked.reset_index(drop=True).to_csv()
    assert found.dtypes.equals(table.normalise(found).dtypes)
    assert load(folder / "results.csv.gz", where)["value"].tolist() == found["value"].tolist()


def test_cells_that_cannot_match_are_not_read(run, monkeypatch):
    read = []
    monkeypatch.setattr(loading.table, "read_csv", lambda path: read.append(path) or pd.DataFrame())
    load(run[0], "depth == 2 and norm == 'rmsnorm' and model_seed == 1")
    load(run[0], {"depth": 3})
    assert len(read) == 1


def test_a_run_loads_where_its_norm_is_not_registered(run, monkeypatch):
    monkeypatch.delitem(NORMS._entries, "rmsnorm")
    assert set(load(run[0], {"depth": 1})["norm"]) == {"layernorm", "rmsnorm"}
    assert len(read_run(run[0]).cells) == 12


def test_mistakes_are_named(run, tmp_path):
    folder, _ = run
    with pytest.raises(UnknownNameError, match="did you mean 'depth'"):
        load(folder, {"depths": 2})
    with pytest.raises(RunError, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(RunError, match="is not a run folder"):
        load(tmp_path)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="is not a table of normlab"):
        load(tmp_path / "a.csv")


def test_a_run_without_a_finished_cell_says_so(run, tmp_path):
    header = json.loads((run[0] / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(header))
    assert read_run(tmp_path).unfinished == 12
    with pytest.raises(RunError, match="has no finished cell"):
        load(tmp_path)
