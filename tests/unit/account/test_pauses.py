"""Why a run is paused, as its ledger alone tells: in its account, its status, its row among others, and its metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnraise.account import run_status
from barnraise.account.account import AccountReader, read
from barnraise.account.moment import RunMoment
from barnraise.account.pauses import Pauses
from barnraise.account.run_list import RunList
from barnraise.account.waiting import recorded_waiting
from barnraise.ledger import Decision, Ledger, Noted, RunDirectory, notes

from ..cli.test_status import BEGINNING, END, make_run, status_of

SHORT, PAUSED = (
    notes.Paused("1 live node, but the aggregation rule needs 2"),
    notes.HostPaused("the lab \x1b[2J moves"),
)
WHY, TOLD = "the host paused the run: the lab [2J moves", "1 live node, but the aggregation rule needs 2"


def after(*happened: notes.Note) -> Pauses:
    found = Pauses()
    for time, note in enumerate(happened, 1):
        found = found.after(Noted(float(time), note))
    return found


def add(run: RunDirectory, *decisions: Decision) -> None:
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(list(decisions), {})


def test_both_reasons_begin_and_end_on_their_own() -> None:
    assert after(SHORT, PAUSED).told == f"paused: {WHY}; {TOLD}"
    assert after(SHORT, PAUSED, notes.Continued()).told == f"paused: {WHY}"
    assert after(SHORT, PAUSED, notes.HostContinued()).told == f"paused: {TOLD}"
    assert after(PAUSED, notes.HostContinued()) == Pauses(continued=2.0)
    assert after(notes.HostPaused()).told == "paused: the host paused the run"
    assert after(SHORT, PAUSED, notes.Stopping("SIGINT")) == Pauses(rule=SHORT.reason)


def seen(run: RunDirectory) -> RunMoment:
    with AccountReader(run) as reader:
        return RunMoment(reader.read(), reader.over_time, 1000, works=run.holder() is not None)


def test_the_state_of_a_run_of_another_process_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, [*BEGINNING, Noted(9.0, PAUSED), Noted(600.0, notes.Traffic(9, 9))])
    with run.lock(), RunList(run.path.parent) as runs:
        assert recorded_waiting(read(run), 700.0) == f"paused: {WHY}"
        assert (seen(run).state, seen(run).waits_for) == ("paused", f"paused: {WHY}")
        (row,) = runs.read()
        assert (row.state, row.news) == ("paused", f"paused: {WHY}")
        text = status_of(run, capsys)
        assert "barn" in text
        assert f"paused: {WHY}" in " ".join(text.split())
        assert f"continue it: barnraise continue {run.path}" in text
        told = json.loads(status_of(run, capsys, "--json"))
        assert (told["state"], told["paused_by_host"]) == ("paused", "the host paused the run: the lab \x1b[2J moves")
        add(run, Noted(601.0, notes.HostContinued()))
        assert recorded_waiting(read(run), 610.0) == ""
        assert (seen(run).state, runs.read()[0].state) == ("training", "running")
        assert json.loads(status_of(run, capsys, "--json"))["paused_by_host"] is None


def test_a_paused_run_without_a_controller_is_interrupted_and_a_finished_one_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, [*BEGINNING, Noted(9.0, PAUSED)])
    assert seen(run).state == "interrupted"
    assert f"{WHY}; it stays paused when it is resumed" in " ".join(status_of(run, capsys).split())
    add(run, *END)
    assert seen(run).state == run_status.state(read(run), None) == "finished"
    assert "paused" not in status_of(run, capsys).rpartition("\n\n")[0].partition("SIGINT")[0]
