"""Run files and formulas full of hostile text: what is wrong with them is told harmlessly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnraise.cli import console
from barnraise.cli.main import main
from barnraise.core.errors import InputError
from barnraise.data.sat import dimacs

from ..hostile import EVIL, LARGE, require_harmless
from ..unit.cli.test_status import RUN_FILE

HOSTILE_FILES = {
    "key": {"run": {"name": "barn"}, EVIL: 1},
    "key of a section": {"training": {EVIL: 1}},
    "name": {"run": {"name": EVIL}},
    "worker": {"workers": [{"name": EVIL, "device": EVIL, "link": EVIL}]},
    "policy": {"aggregation": {"rule": EVIL}, "controller": {"scheduler": EVIL}},
    "path": {"data": {"kind": "text", "files": [EVIL.replace("\x00", "")]}},
    "model": {"model": {"architecture": EVIL}},
    "large": {"training": {"tokens": "9" * 1_000_000, "batch_size": LARGE}},
    "metric": {"evaluation": {"metrics": [EVIL]}},
    "receiver": {
        "alerts": {"webhook_file": EVIL.replace("\x00", ""), "email_to": [EVIL]},
        "tracing": {"endpoint": EVIL},
    },
}


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_errors_of_a_hostile_run_file_are_harmless(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "<b>\u202e\x1b[2J\n\udcff"
    folder.mkdir()
    path = folder / "run\u202e.yaml"
    path.write_text(json.dumps(RUN_FILE | HOSTILE_FILES[name]))
    assert main(["check", str(path)]) == 2
    found = capsys.readouterr()
    require_harmless(found.out + found.err)
    assert "Traceback" not in found.err
    assert 0 < len(found.err.splitlines()) < 20


@pytest.mark.parametrize(
    "content", [EVIL, f"c {EVIL}\np cnf 1 1\n1 0\n", f"p cnf {EVIL}", "p cnf 1 1\n" + "1 " * 500_000]
)
def test_a_hostile_formula_is_harmless(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f\u202e\x1b.cnf"
    path.write_bytes(content.encode("utf-8", "replace"))
    try:
        assert dimacs.read(path).clauses
    except InputError as error:
        console.fail(str(error))
    require_harmless(capsys.readouterr().err)
