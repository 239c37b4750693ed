"""The files that a pattern names: as globs do, but without going around in circles."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from barnraise.core.errors import DataError
from barnraise.data import text
from barnraise.data.paths import files_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "b.md", "x/a.txt", "x/y/c.txt", ".hidden/d.txt", "x/.e.txt", "x/[1].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("pattern", ["a.txt", "*.txt", "**/*.txt", "x/*", "**", "?.*", "[ab].*", "*/y/*", "x/**/c.txt"])
def test_patterns_name_what_glob_says(folder: Path, pattern: str) -> None:
    wanted = {name for name in glob.glob(f"{folder}/{pattern}", recursive=True) if Path(name).is_file()}
    assert wanted
    assert {str(path) for path in files_of(pattern, folder)} == wanted
    assert {str(path) for path in files_of(f"{folder}/{pattern}")} == wanted


def test_a_file_that_is_named_like_a_pattern(folder: Path) -> None:
    assert list(files_of("x/[1].txt", folder)) == [folder / "x/[1].txt"]


def test_a_folder_is_all_files_in_it_but_hidden_ones(folder: Path) -> None:
    found = {str(path.relative_to(folder)) for path in files_of(".", folder)}
    assert found == {"a.txt", "b.md", "x/a.txt", "x/y/c.txt", "x/[1].txt"}
    assert list(files_of("nowhere", folder)) == list(files_of("*/*/*/*/*", folder)) == []


def test_links_that_go_around_in_circles(folder: Path) -> None:
    """Two of them were 2^40 paths to a glob that goes into links."""
    (folder / "x" / "up").symlink_to(folder)
    (folder / "x" / "around").symlink_to(folder / "x")
    (folder / "self.txt").symlink_to(folder / "self.txt")
    for pattern in ("**/*.txt", "."):
        assert len(list(files_of(pattern, folder))) == len(set(files_of(pattern, folder))) <= 5
    with pytest.raises(DataError, match=r"'self\.txt' is a link that leads nowhere or back to itself"):
        text.find(["self.txt"], root=folder)
