"""Files that are written whole or not at all."""

from __future__ import annotations

import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from barnraise.core.files import write_file


def test_a_reader_of_the_old_file_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_file(path, b"old" * 10_000)
    with path.open("rb") as reader:
        assert reader.read(3) == b"old"
        write_file(path, b"new")
        assert reader.read() == b"old" * 9_999
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_unfinished_file_of_a_killed_writer_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    (tmp_path / ".key.unfinished").write_bytes(b"half a sec")
    write_file(path, b"secret", mode=0o600)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"secret", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """No file may grow beyond 1000 bytes there, like on a full disk."""
    path = tmp_path / "file"
    write_file(path, b"old")
    limit = (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    script = "import sys; from pathlib import Path; from barnraise.core.files import write_file\n"
    script += "write_file(Path(sys.argv[1]), bytes(10_000))"
    ended = subprocess.run(
        [sys.executable, "-B", "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert "File too large" in ended.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
