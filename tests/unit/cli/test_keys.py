"""`barnraise keys` makes a private file once, and prints what the run file gets."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from barnraise.cli.main import main
from barnraise.config import load
from barnraise.privacy.encryption import keys


def run(*arguments: str) -> int:
    try:
        return main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)


def test_a_key_is_made_once_and_shown_as_the_run_file_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "club.key"
    assert run("keys", "make", str(file)) == 0
    made = capsys.readouterr().out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("keys", "show", str(file), "--json") == 0
    name = json.loads(capsys.readouterr().out)["key"]
    assert name == keys.load(file).name
    assert name.startswith("club/")
    assert f"    key: {name}" in made
    assert run("keys", "make", str(file)) == 2
    assert "exists, and a key that is replaced cannot be restored" in capsys.readouterr().err


def test_the_name_of_a_key_fits_a_run_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("keys", "make", str(tmp_path / "a b.key")) == 2
    assert "'a b' cannot name a key" in capsys.readouterr().err
    assert run("keys", "make", str(tmp_path / "a b.key"), "--name", "club_2.x", "--json") == 0
    name = json.loads(capsys.readouterr().out)["key"]
    content = {
        "model": {"architecture": "gpt2"},
        "data": {"kind": "text", "files": ["a"]},
        "privacy": {"homomorphic_encryption": {"key": name}},
    }
    section = load(content).privacy.homomorphic_encryption
    assert section is not None
    assert section.key == name
