"""`barnraise events`: the events of a run, and further ones as they come."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnraise.cli.main import main
from barnraise.ledger import Ledger, NodeChanged, Noted, RunDirectory, notes

from ..account.test_events import ROWS


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create("barn", tmp_path)
    run.run_file.write_text("")
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(ROWS, {1: b"payload"})
    return run


def told(run: RunDirectory, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        main(["events", str(run.path), *options])
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


def test_events_are_lines_of_time_kind_and_text(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(run, capsys)
    assert [line.split()[2] for line in lines] == ["joined", "left", "back", "refused"]
    assert lines[1] == "       8.0 s  left          a is gone: silent [2J for 1.2 s"
    assert told(run, capsys, "--last", "1") == lines[-1:]
    assert told(run, capsys, "--since", "5s") == lines[1:]
    assert told(run, capsys, "--kind", "refused", "--node", "a") == lines[-1:]


def test_events_for_programs_have_the_ledgers_row(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = told(run, capsys, "--kind", "refused", "--json")
    event = json.loads(line)
    assert (event["row"], event["kind"], event["sort"], event["decision"]["norm"]) == (12, "refused", "Judged", 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "refuse"], "did you mean 'refused'"),
        (["--node", "aa"], "unknown node of barn-.*did you mean 'a'"),
        (["--since", "5"], "write it with a unit, as 5h or 5d"),
    ],
)
def test_bad_input_is_answered(
    run: RunDirectory, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    assert main(["events", str(run.path), *options]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_follower_sees_what_comes_and_ends_with_the_run(run: RunDirectory) -> None:
    with run.lock(), Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        command = [sys.executable, "-m", "barnraise.cli.main", "events", str(run.path), "--follow", "--json"]
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert follower.stdout is not None
        seen = [json.loads(follower.stdout.readline())["kind"] for _ in range(4)]
        ledger.commit([NodeChanged(20.0, "a", "killed", "signal 9")], {})
        seen.append(json.loads(follower.stdout.readline())["kind"])
        ledger.commit([Noted(21.0, notes.Finished("the token budget is met"))], {})
    out, err = follower.communicate(timeout=30)
    assert [*seen, json.loads(out)["kind"]] == ["joined", "left", "back", "refused", "killed", "finished"]
    assert (follower.returncode, err) == (0, "")


def test_a_follower_of_an_interrupted_run_says_what_it_waits_for(run: RunDirectory) -> None:
    command = [sys.executable, "-m", "barnraise.cli.main", "events", str(run.path), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stderr is not None
        assert "no controller works on this run: waiting for `barnraise resume" in follower.stderr.readline()
        time.sleep(0.1)
        assert follower.poll() is None
        follower.kill()
