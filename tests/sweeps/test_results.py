"""Joined tables."""

import gzip
from pathlib import Path

import pytest

from normlab import table
from normlab.errors import RunError
from normlab.sweeps import results
from normlab.sweeps.cells import run_cell
from normlab.sweeps.loading import load
from normlab.sweeps.workers import cell_bytes


@pytest.fixture
def files(cells, tmp_path):
    """The files of three cells."""
    paths = [tmp_path / f"{number}.csv.gz" for number in range(3)]
    for path, cell in zip(paths, cells, strict=False):
        path.write_bytes(cell_bytes(run_cell(cell)))
    return paths


def test_joined_files_are_the_table_of_all_cells(files, tmp_path):
    results.join(tmp_path, files)
    whole = table.concat(table.read_csv(path) for path in files)
    joined = gzip.decompress((tmp_path / results.CSV).read_bytes())
    assert joined == gzip.decompress(table.to_csv_bytes(whole))


def test_a_file_of_other_columns_is_refused(files, tmp_path):
    files[1].write_bytes(table.to_csv_bytes(table.from_rows([{"quantity": "loss", "value": 1.0}])))
    with pytest.raises(RunError, match="has other columns than this normlab writes"):
        results.join(tmp_path, files)
    assert not (tmp_path / results.CSV).exists()


def test_blocks_hold_no_more_than_needed(monkeypatch):
    monkeypatch.setattr(results, "BLOCK_ROWS", 4)
    frame = table.from_rows([{"quantity": "loss", "value": 1.0}, {"quantity": "count", "value": 1.0}])
    assert [len(block) for block in results.blocks([Path()] * 5, lambda _: frame)] == [4, 4, 2]


def test_the_parquet_file_is_the_same_table(files, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.setattr(results, "BLOCK_ROWS", 1)
    results.join(tmp_path, files)
    assert load(tmp_path / results.PARQUET).equals(table.read_csv(tmp_path / results.CSV))
