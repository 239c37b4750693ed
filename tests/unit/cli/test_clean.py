"""`barnraise clean`: what runs and joins left, and its removal."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from barnraise.assembly import cleaning
from barnraise.cli import main
from barnraise.core.errors import InputError, RunDirectoryError
from barnraise.ledger import RunDirectory
from barnraise.transport import identity


def a_run(base: Path, name: str) -> RunDirectory:
    run = RunDirectory.create(name, base)
    run.run_file.write_text("x: 1\n")
    run.ledger.write_bytes(b"")
    (run.segments / "one").write_bytes(bytes(10_000))
    return run


def run_command(*arguments: str) -> int:
    try:
        return main.main(["clean", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.fixture
def left(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with a run, and a home of two joins, one of them eight days old."""
    a_run(tmp_path / "runs", "small")
    for name in ("old", "new"):
        with identity.claimed(tmp_path / "home" / "some-run", name) as (_, folder):
            (folder / "data").mkdir()
            (folder / "data" / "shard").write_bytes(bytes(5000))
            week = time.time() - 8 * 86_400
            if name == "old":
                for file in (folder / "lock", folder / "data" / "shard", folder / "data"):
                    os.utime(file, (week, week))
    return tmp_path / "runs", tmp_path / "home"


def test_it_lists_and_removes_nothing_by_itself(left: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    runs, home = left
    assert run_command("--runs", str(runs), "--home", str(home), "--json") == 0
    found = json.loads(capsys.readouterr().out)["found"]
    assert [(item["kind"], item["state"]) for item in found] == [
        ("run", "interrupted"),
        ("join", "left"),
        ("join", "left"),
    ]
    assert found[0]["bytes"] >= 10_000
    assert run_command("--runs", str(runs), "--home", str(home)) == 0
    assert "interrupted" in capsys.readouterr().out
    assert run_command("--runs", str(runs / "none"), "--home", str(home / "none")) == 0
    assert "nothing is left here" in capsys.readouterr().out


def test_removing_needs_a_word(left: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    runs, home = left
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    (run,) = runs.iterdir()
    assert run_command(str(run), "--home", str(home)) == 2
    assert run.exists()
    assert run_command(str(run), "--home", str(home), "--yes") == 0
    assert not run.exists()
    assert len(list(home.glob("*/*"))) == 2


def test_joined_folders_are_removed_by_age(left: tuple[Path, Path]) -> None:
    runs, home = left
    assert run_command("--joined", "--older", "7d", "--home", str(home), "--yes") == 0
    assert [folder.name for folder in home.glob("*/*")] == ["new"]
    assert run_command("--joined", "--home", str(home), "--yes") == 0
    assert not list(home.iterdir())
    assert list(runs.iterdir())


def test_folders_in_use_are_kept(left: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    runs, home = left
    (path,) = runs.iterdir()
    with identity.claimed(home / "some-run", "new") as (_, folder), RunDirectory.open(path).lock():
        assert run_command(str(path), "--joined", "--home", str(home), "--yes") == 0
        assert "is in use and is kept" in capsys.readouterr().err
        assert path.exists()
        assert folder.exists()
        for found in (cleaning.run_at(path), *cleaning.joined_in(home)):
            with pytest.raises((RunDirectoryError, InputError)):
                cleaning.remove(found)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert run_command(str(tmp_path / "mine"), "--yes") == 2
    assert (tmp_path / "mine").exists()
