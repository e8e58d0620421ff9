import re
from pathlib import Path

import pytest

from normlab.files import whole_file, write_whole


def test_a_file_keeps_its_old_content_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as part:
        part.write_bytes(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old" and [entry.name for entry in tmp_path.iterdir()] == ["a"]
    write_whole(path, b"new")
    assert path.read_bytes() == b"new" and [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_text_is_utf_8_with_its_own_line_ends_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "of" / "mine" / "a.md"
    write_whole(path, "‖x‖\r\n")
    assert path.read_bytes() == "‖x‖\r\n".encode()


def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        write_whole(tmp_path / "a", "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_there_is_one_way_to_write_a_file_whole() -> None:
    root = Path(__file__).parents[1]
    files = [
        path for part in ("normlab", "cli", "reports", "cupy_kernels", "tools") for path in (root / part).rglob("*.py")
    ]
    pattern = re.compile(r"os\.replace\(|with_name\(f\"\.\{|with_suffix\(\"\.(part|new)")
    here = {path.resolve() for path in files if pattern.search(path.read_text(encoding="utf-8"))}
    assert here == {(root / "normlab/files.py").resolve()}
