"""The table: schema, order, files."""

import gzip
import math

import numpy as np
import pandas as pd
import pytest

from normlab import table
from normlab.errors import DataError


def rows(layers: int = 3) -> list[dict[str, object]]:
    return [
        {
            "stack": "decoder",
            "layer": layer,
            "sublayer": sublayer,
            "site": site,
            "quantity": quantity,
            "value": 0.1 * layer,
        }
        for quantity in ("rms", "mean_square")
        for site in ("input", "stream")
        for sublayer in ("mlp", "attn")
        for layer in reversed(range(1, layers + 1))
    ]


def test_rows_stand_in_key_order() -> None:
    frame = table.from_rows(rows())
    assert frame["layer"].tolist() == sorted(frame["layer"])
    first = frame[frame["layer"] == 1]
    assert first["sublayer"].tolist() == ["attn"] * 4 + ["mlp"] * 4
    assert first["site"].tolist()[:4] == ["stream", "stream", "input", "input"]
    assert first["quantity"].tolist()[:2] == ["mean_square", "rms"]


def test_order_does_not_depend_on_the_order_of_rows() -> None:
    shuffled = [rows()[index] for index in np.random.default_rng(0).permutation(len(rows()))]
    pd.testing.assert_frame_equal(table.from_rows(shuffled), table.from_rows(rows()))


def test_equal_keys_are_refused() -> None:
    with pytest.raises(DataError, match="two rows have the same key .*quantity=rms"):
        table.from_rows([*rows(), rows()[0]])


def test_unknown_column_is_refused_with_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'layer'"):
        table.from_rows([{"layr": 1}])


def test_files_give_back_every_bit(tmp_path) -> None:
    values = [0.1, 1 / 3, 1e-300, 5e300, math.inf, -math.inf, math.nan, 0.0]
    frame = table.from_rows([{"layer": index, "value": value} for index, value in enumerate(values)], {"depth": 3})
    (tmp_path / "t.csv.gz").write_bytes(table.to_csv_bytes(frame))
    again = table.read_csv(tmp_path / "t.csv.gz")
    pd.testing.assert_frame_equal(again, frame, check_exact=True)


def test_same_table_same_bytes() -> None:
    frame = table.from_rows(rows())
    assert table.to_csv_bytes(frame) == table.to_csv_bytes(frame.copy())


def test_compressed_files_can_be_joined(tmp_path) -> None:
    first, second = (table.from_rows(rows(), {"depth": depth, "width": 8}) for depth in (2, 4))
    (tmp_path / "t.csv.gz").write_bytes(table.to_csv_bytes(first) + table.to_csv_bytes(second, header=False))
    pd.testing.assert_frame_equal(table.read_csv(tmp_path / "t.csv.gz"), table.concat([second, first]))


def test_concat_fills_columns_that_one_table_lacks() -> None:
    both = table.concat([table.from_rows(rows(1), {"depth": 2}), table.from_rows(rows(1))])
    assert both["depth"].isna().sum() == len(rows(1))


def test_cells_are_found_again() -> None:
    both = table.concat([table.from_rows(rows(1), {"depth": depth, "width": 8}) for depth in (2, 4)])
    found = {cell["depth"]: len(part) for cell, part in table.cells(both)}
    assert found == {2: len(rows(1)), 4: len(rows(1))}


def test_a_file_that_is_not_a_table(tmp_path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="has no column 'source'"):
        table.read_csv(tmp_path / "x.csv")
    with pytest.raises(DataError, match="cannot be read"):
        table.read_csv(tmp_path / "missing.csv")


def test_every_site_and_quantity_is_defined() -> None:
    assert all(name == site.name and site.definition for name, site in table.SITES.items())
    assert all(name == quantity.name and quantity.definition for name, quantity in table.QUANTITIES.items())
    assert all(site.gradient_of in table.SITES for site in table.SITES.values() if site.gradient_of)


def test_cell_columns_are_the_fields_of_a_spec() -> None:
    from normlab.spec import ModelSpec

    run = {"data", "batch", "tokens", "loss", "model_seed", "data_seed"}
    assert set(table.CELL_COLUMNS) == set(ModelSpec(depth=1, width=8).columns()) | run


@pytest.mark.parametrize("name", ["plain", 'line\nbreak, "quoted"'])
def test_repeating_constant_columns_as_text_writes_the_same_csv(name):
    frame = table.from_rows([{"quantity": q, "value": v, "name": name} for q, v in (("loss", 0.1), ("count", 2.0))])
    frame = frame.assign(norm="a,b", depth=3)
    plain = frame.to_csv(index=False, lineterminator="\n")
    assert gzip.decompress(table.to_csv_bytes(frame)).decode() == plain
