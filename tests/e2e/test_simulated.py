"""`barnraise simulate --run-dir` as a user runs it: to its end, interrupted, and killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from barnraise.account.account import read
from barnraise.core.errors import RunDirectoryError
from barnraise.ledger import LedgerHash, LedgerView, RunDirectory

from ..campaigns import campaign


def test_a_simulation_is_looked_at_like_a_run(barnraise, run_file, tmp_path: Path) -> None:
    simulated = barnraise("simulate", str(run_file()), "--run-dir", "sim", "--json")
    assert simulated.wait() == 0, simulated.text()
    run = RunDirectory.open(tmp_path / "sim")
    assert simulated.json()["run_dir"] == str(run.path)
    with LedgerView(run.ledger) as view:
        found = LedgerHash(decision for _, decision in view.replay()).hexdigest()
    assert simulated.json()["ledger_hash"] == found
    status = barnraise("status", "sim")
    assert status.wait() == 0
    assert "simulated, finished: the token budget is met" in status.text()
    assert barnraise("report", "sim").wait() == 0
    assert run.report.is_file()
    resume = barnraise("resume", "sim")
    assert resume.wait() == 2
    assert "is a simulation's: there is nothing to resume" in resume.text()
    again = barnraise("simulate", str(run_file()), "--run-dir", "sim")
    assert again.wait() == 2
    assert "is not empty" in again.text()


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), campaign(signal.SIGKILL, -signal.SIGKILL)])
def test_a_simulation_that_is_cut_short_can_be_read(end: int, code: int, barnraise, run_file, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "sim")

    def under_way(text: str) -> bool:
        try:
            return read(run).totals.accepted > 0
        except RunDirectoryError:  # there is no ledger yet, or it has no tables
            return False

    simulated = barnraise("simulate", str(run_file()), "--hours", "100000", "--run-dir", "sim", prefix=[])
    simulated.wait_for(under_way)
    simulated.popen.send_signal(end)
    assert simulated.wait() == code, simulated.text()
    status = barnraise("status", "sim", "--json")
    assert status.wait() == 0, status.text()
    assert json.loads(status.out.read_text())["state"] == "interrupted"
    if end == signal.SIGINT:
        assert f"interrupted: {run.path} holds what was simulated until then" in simulated.text()
