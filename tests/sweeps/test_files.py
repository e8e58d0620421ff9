"""Files that appear whole or not at all."""

import errno

import pytest

from normlab.errors import RunError
from normlab.sweeps import files


def test_a_file_keeps_its_old_content_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), files.replacing(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    files.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(RunError, match="No space left on device.*choose another out") as error, files.writing(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "\n" not in str(error.value)
