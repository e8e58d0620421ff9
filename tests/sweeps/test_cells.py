"""One cell: a pure function of what its id hashes."""

import dataclasses
import gc
import math
import weakref

import torch

from normlab import table
from normlab.data import Random, Text
from normlab.models import build
from normlab.spec import ModelSpec
from normlab.sweeps import cells as cells_module
from normlab.sweeps.cells import Cell, run_cell, with_columns

CELL = Cell(ModelSpec(depth=2, width=16), 3, Random(2, 8))

OTHERS = [
    dataclasses.replace(CELL, seed=4),
    dataclasses.replace(CELL, spec=ModelSpec(depth=3, width=16)),
    dataclasses.replace(CELL, data=Random(2, 9)),
    dataclasses.replace(CELL, data=Text(2, 8)),
    dataclasses.replace(CELL, dtype="float64"),
    dataclasses.replace(CELL, sites=("stream",)),
    dataclasses.replace(CELL, quantities=("mean_square",)),
]


def test_the_same_cell_gives_the_same_bytes():
    assert table.to_csv_bytes(run_cell(CELL)) == table.to_csv_bytes(run_cell(CELL))


def test_everything_that_changes_numbers_changes_the_id():
    assert len({cell.id for cell in [CELL, *OTHERS]}) == len(OTHERS) + 1
    assert dataclasses.replace(CELL).id == CELL.id


def test_where_a_text_lies_does_not_change_the_id(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.txt").write_text("the same words in both")
    first, second = (dataclasses.replace(CELL, data=Text(1, 4, str(tmp_path / name / "t.txt"))) for name in "ab")
    assert first.id == second.id


def test_the_loss_is_that_of_the_model_on_the_batch_of_its_seeds():
    rows = run_cell(CELL)
    measured = rows.loc[rows["quantity"] == "loss", "value"]
    batch = Random(2, 8).draw(10_003)
    assert measured.tolist() == [build(CELL.spec, seed=3).loss(*batch).item()]


def test_a_table_has_the_columns_of_the_cell():
    rows = run_cell(CELL)
    assert list(rows.columns) == [*table.COLUMNS, *table.CELL_COLUMNS]
    found = {name: rows[name].unique().tolist() for name in ("depth", "model_seed", "data_seed", "data", "spec")}
    assert found == {
        "depth": [2],
        "model_seed": [3],
        "data_seed": [10_003],
        "data": ["random:256"],
        "spec": [CELL.spec.id],
    }


def test_constant_columns_are_those_of_the_schema():
    frame = table.from_rows([{"quantity": "loss", "value": 1.0}, {"quantity": "count", "value": 2.0}])
    plain = table.normalise(frame.assign(**{name: [value] * 2 for name, value in CELL.columns().items()}))
    assert with_columns(frame, CELL.columns()).equals(plain)
    assert with_columns(frame, CELL.columns()).dtypes.equals(plain.dtypes)


def test_dropout_is_drawn_from_the_seed_and_the_callers_state_is_kept():
    cell = dataclasses.replace(CELL, spec=ModelSpec(depth=2, width=16, dropout=0.5))
    state = torch.get_rng_state()
    first = run_cell(cell)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(1)
    assert first.equals(run_cell(cell))


def test_a_loss_that_is_not_finite_is_data(monkeypatch):
    def broken(spec, *, seed, dtype):
        model = build(spec, seed=seed, dtype=dtype)
        with torch.no_grad():
            model.head.weight[0, 0] = math.inf
        return model

    monkeypatch.setattr(cells_module, "build", broken)
    rows = run_cell(CELL)
    assert rows.loc[rows["quantity"] == "loss", "status"].tolist() == ["nonfinite"]


def test_a_cell_runs_in_the_dtype_that_it_names():
    rows = run_cell(dataclasses.replace(CELL, dtype="float64"))
    assert set(rows.loc[rows["quantity"].isin(["loss", "mean_square"]), "dtype"]) == {"float64"}


def test_nothing_keeps_a_model_once_its_cell_is_done(monkeypatch):
    built = []

    def watched(spec, *, seed, dtype):
        model = build(spec, seed=seed, dtype=dtype)
        built.append(weakref.ref(model))
        return model

    monkeypatch.setattr(cells_module, "build", watched)
    run_cell(CELL)
    gc.collect()
    assert [reference() for reference in built] == [None]
