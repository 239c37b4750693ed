"""The name under which advice in messages tells people to run the program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnraise.core.program import program


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "venv" / "bin" / "barnraise"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.chdir(tmp_path)
    return path


def test_a_script_on_the_path_goes_by_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "barnraise"


def test_a_script_elsewhere_goes_by_its_path(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == "venv/bin/barnraise"
    (script.parents[2] / "elsewhere").mkdir()
    monkeypatch.chdir(script.parents[2] / "elsewhere")
    assert program() == str(script)


def test_another_script_of_the_same_name_does_not_count(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = script.parents[2] / "other"
    other.mkdir()
    (other / "barnraise").write_text("#!/bin/sh\n")
    (other / "barnraise").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    assert program() == "venv/bin/barnraise"


def test_a_program_that_imports_barnraise_is_told_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["notebook.py"])
    assert program() == "barnraise"
