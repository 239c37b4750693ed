"""`barnraise top`: the runs in a folder, a row each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnraise.account.run_list import RunList
from barnraise.cli.main import main
from barnraise.ledger import Ledger, NodeChanged, RunDirectory

from .test_status import BEGINNING, END, make_run


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, RunDirectory]:
    """Three runs in one folder: interrupted, finished, and one whose ledger is damaged."""
    made = {name: make_run(tmp_path / "runs", [*BEGINNING, *more]) for name, more in (("cut", []), ("over", END))}
    made["broken"] = make_run(tmp_path / "runs", [])
    made["broken"].ledger.write_bytes(b"no database" * 1000)
    return made


def rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    with pytest.raises(SystemExit) as ended:
        main(["top", str(folder), "--json"])
    assert ended.value.code == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["name"]: row for row in found}


def test_each_run_has_a_row(runs: dict[str, RunDirectory], capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(runs["cut"].path.parent, capsys)
    states = {name: found[run.path.name]["state"] for name, run in runs.items()}
    assert states == {"cut": "interrupted", "over": "finished", "broken": "unreadable"}
    cut = found[runs["cut"].path.name]
    assert (cut["loss"], cut["progress"], cut["accepted"], cut["workers"]) == (3.25, 0.4, 1, 2)
    assert "not a database" in found[runs["broken"].path.name]["news"]


def test_a_picture_names_the_runs_and_what_happened(
    runs: dict[str, RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["top", str(runs["cut"].path.parent)])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "run", "state", "done", "loss", "tokens/s", "workers", "version", "refused", "for", "last"
    ]  # fmt: skip
    assert any("40.0%" in line and "3.250" in line and "interrupted" in line for line in lines)
    assert any("finished: SIGINT" in line for line in lines)


def test_a_run_that_works_comes_first_and_is_read_as_it_grows(runs: dict[str, RunDirectory]) -> None:
    run = runs["cut"]
    with run.lock(), RunList(run.path.parent) as listed:
        first = listed.read()[0]
        assert (first.name, first.state, first.news) == (run.path.name, "running", "a joined")
        with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
            ledger.commit([NodeChanged(30.0, "a", "killed", "signal 9")], {})
        assert listed.read()[0].news == "a is gone: signal 9"


def test_a_folder_without_runs_is_refused(
    runs: dict[str, RunDirectory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, message in (
        (tmp_path / "none", "there is no folder"),
        (runs["cut"].path, "is one run: use `barnraise status"),
        (runs["cut"].path / "data", "holds no runs"),
    ):
        assert main(["top", str(folder)]) == 2
        assert message in capsys.readouterr().err
