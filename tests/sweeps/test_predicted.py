"""Theory that is kept in the run folder."""

import pandas as pd

from normlab.data import Text
from normlab.sweeps import grid, sweep
from normlab.sweeps.predicted import theory_of


def test_predictions_are_kept_and_read_again(tmp_path, monkeypatch):
    text = tmp_path / "mine.txt"
    text.write_text("a b c d e f g h " * 9, encoding="utf-8")
    out = tmp_path / "run"
    table = sweep(grid(depth=[1, 2], width=8), seeds=range(2), data=Text(2, 8, str(text)), out=out, jobs=1)
    first = theory_of(table, out)
    assert "very batches" in first.sayings[0] and len(list(out.glob("theory-*"))) == 1
    monkeypatch.setattr("normlab.sweeps.predicted.predicted", None)
    pd.testing.assert_frame_equal(theory_of(table, out).table, first.table)
    monkeypatch.undo()
    fewer = theory_of(table[table["depth"] == 1], out)
    assert set(fewer.table["depth"]) == {1} and len(list(out.glob("theory-*"))) == 1


def test_a_table_of_its_own_text_has_theory_of_random_tokens(tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("a b c d e f g h " * 9, encoding="utf-8")
    table = sweep(grid(depth=1, width=8), seeds=range(1), data=Text(2, 8, str(text)), jobs=1)
    assert "random tokens" in theory_of(table).sayings[0]
