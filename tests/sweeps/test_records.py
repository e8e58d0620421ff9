"""One line a finished cell."""

import dataclasses
import errno
import os

import pytest

from normlab.errors import RunError
from normlab.sweeps import records
from normlab.sweeps.records import SweepWarning, record_of


@pytest.fixture
def some(cells):
    return [record_of(cell, cell.id, "ok", rows=number, seconds=0.5) for number, cell in enumerate(cells)]


def test_lines_are_read_back(tmp_path, some):
    for record in some:
        records.append(tmp_path / "cells.jsonl", record)
    assert list(records.read(tmp_path / "cells.jsonl").values()) == some
    assert records.is_tidy(tmp_path / "cells.jsonl", len(some))


def test_the_last_line_of_a_cell_counts(tmp_path, some):
    failed = dataclasses.replace(some[0], status="failed", error="ValueError: größer")
    for record in (failed, some[1], some[0]):
        records.append(tmp_path / "cells.jsonl", record)
    assert records.read(tmp_path / "cells.jsonl") == {record.id: record for record in some[:2]}


@pytest.mark.parametrize("cut", [1, 30])
def test_a_torn_last_line_is_left_out_with_a_warning(tmp_path, some, cut):
    path = tmp_path / "cells.jsonl"
    for record in some[:3]:
        records.append(path, record)
    path.write_bytes(path.read_bytes()[:-cut])
    if cut == 1:  # only the line's end is missing: the record is whole
        assert len(records.read(path)) == 3
    else:
        with pytest.warns(SweepWarning, match="a torn line is left out"):
            assert list(records.read(path).values()) == some[:2]
    assert not records.is_tidy(path, 2)


def test_no_file_is_no_record(tmp_path):
    assert records.read(tmp_path / "cells.jsonl") == {}
    assert records.is_tidy(tmp_path / "cells.jsonl", 0)


def test_a_full_disk_is_one_sentence(tmp_path, some, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError, match="No space left on device"):
        records.append(tmp_path / "cells.jsonl", some[0])
