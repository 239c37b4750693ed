"""A simulation's run directory has its decisions, is read like a run's, and refuses what needs a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnraise import simulate as call
from barnraise.account.account import Account, read
from barnraise.account.report import write_report
from barnraise.account.run_list import RunList
from barnraise.assembly import requests
from barnraise.assembly.cleaning import OVER, run_at
from barnraise.assembly.exporting import export_model
from barnraise.assembly.hosting import recorded_plan
from barnraise.assembly.recorded import recorded
from barnraise.assembly.simulation import Watch, simulate, unwatched
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.cli.main import main
from barnraise.config import load
from barnraise.core.errors import CorruptionError, RunDirectoryError
from barnraise.emulation.simulator import Simulator
from barnraise.ledger import Decision, LedgerHash, LedgerView, RunDirectory
from barnraise.plan import Plan, Purpose, resolve

NAMES = ["ann", "bob", "cat", "dan"]
RUN: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
    "data": {"kind": "sat", "examples": 20_000, "held_out": 20},
    "workers": [{"name": name} for name in NAMES],
    "training": {"tokens": 150_000, "batch_size": 4, "local_steps": 10},
}
DEATH = {"at_seconds": 30.0, "do": "kill_controller", "seconds": 20.0}


def planned(**sections: Any) -> Plan:
    return resolve(load(RUN | sections), purpose=Purpose.SIMULATE, nodes=len(NAMES))


def play(path: Path, plan: Plan, watch: Watch = unwatched, **trial: Any) -> tuple[Report, list[str]]:
    """Return the report of a simulation that leaves the folder `path`, and what it said."""
    said: list[str] = []
    arguments = Trial(**{"nodes": len(NAMES), "tokens_per_second": 500.0} | trial)
    with recorded(path, plan, arguments, watch, say=said.append) as watched:
        return simulate(plan, arguments, watched), said


def decisions(path: Path) -> list[Decision]:
    with LedgerView(RunDirectory.open(path).ledger) as view:
        return [decision for _, decision in view.replay()]


def account_of(path: Path) -> Account:
    return read(RunDirectory.open(path))


@pytest.mark.parametrize(
    "trial",
    [{}, {"churn": True, "hours": 0.2}, {"nodes": 40, "hours": 0.05}],
    ids=["named workers", "churn", "drawn fleet"],
)
def test_the_ledger_has_the_simulations_decisions(trial: dict[str, Any], tmp_path: Path) -> None:
    report, said = play(tmp_path / "sim", planned(), **trial)
    found = decisions(tmp_path / "sim")
    assert said == []
    assert LedgerHash(found).hexdigest() == report.ledger_hash
    account = account_of(tmp_path / "sim")
    assert (account.totals.tokens, account.totals.version) == (report.tokens, report.versions)
    assert account.totals.accepted == report.verdicts.accepted
    assert (account.traffic.up, account.traffic.down) == (report.traffic.bytes_up, report.traffic.bytes_down)
    assert account.finished == report.end
    assert account.simulation is not None
    assert not list(RunDirectory(tmp_path / "sim").segments.iterdir()), "payloads are not kept"


def test_recording_changes_no_history(tmp_path: Path) -> None:
    arguments = Trial(len(NAMES), tokens_per_second=500.0)
    assert play(tmp_path / "sim", planned())[0].ledger_hash == simulate(planned(), arguments).ledger_hash


def test_a_controller_that_dies_continues_in_another_epoch(tmp_path: Path) -> None:
    report, _ = play(tmp_path / "sim", planned(faults=[DEATH]))
    assert LedgerHash(decisions(tmp_path / "sim")).hexdigest() == report.ledger_hash
    account = account_of(tmp_path / "sim")
    assert account.totals.epochs == 2
    assert any(one.kind == "resumed" for one in account.happenings)


def test_real_tensors_have_losses_and_costed_work_has_none(tmp_path: Path) -> None:
    report, _ = play(tmp_path / "real", planned(training=RUN["training"] | {"tokens": 20_000}), real=True)
    account = account_of(tmp_path / "real")
    write_report(account, None)
    assert (tmp_path / "real" / "report" / "loss.png").is_file()
    found = [point.loss for point in account.losses]
    assert found == [point.loss for point in report.losses.curve]
    play(tmp_path / "costed", planned())
    costed = account_of(tmp_path / "costed")
    assert costed.losses == []
    assert not any(one.kind == "evaluated" for one in costed.happenings)


def test_the_first_reader_of_a_long_simulation_finds_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path / "short", planned(), hours=0.05)
    assert not RunDirectory(tmp_path / "short").account_cache.exists()
    monkeypatch.setattr("barnraise.account.account.LEAST_KEPT", 100)
    play(tmp_path / "long", planned(), hours=0.05)
    assert RunDirectory(tmp_path / "long").account_cache.is_file()
    short, long = account_of(tmp_path / "short"), account_of(tmp_path / "long")
    assert long.as_json() == short.as_json() | {"run_dir": str(tmp_path / "long")}


def test_an_interrupted_simulation_leaves_a_beginning(tmp_path: Path) -> None:
    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        def interrupt(now: float, decision: Decision) -> None:
            if simulator.controller.state.totals.accepted == 20:
                raise KeyboardInterrupt

        simulator.observers.append(interrupt)
        yield

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "cut", planned(), watch)
    play(tmp_path / "whole", planned())
    cut, whole = decisions(tmp_path / "cut"), decisions(tmp_path / "whole")
    assert 20 < len(cut) < len(whole)
    assert whole[: len(cut)] == cut
    account = account_of(tmp_path / "cut")
    assert (account.finished, account.totals.accepted) == ("", 20)


def test_a_simulation_that_never_began_leaves_no_folder(tmp_path: Path) -> None:
    plan, arguments = planned(), Trial(len(NAMES))
    with pytest.raises(KeyboardInterrupt), recorded(tmp_path / "sim", plan, arguments, say=print):
        raise KeyboardInterrupt
    assert not (tmp_path / "sim").exists()


def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    play(tmp_path / "empty", planned(), hours=0.01)
    with pytest.raises(RunDirectoryError, match="is not empty: name a folder"):
        play(tmp_path / "empty", planned())
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot make the folder"):
        play(tmp_path / "file", planned())


def test_a_folder_is_locked_while_its_simulation_works(tmp_path: Path) -> None:
    run, seen = RunDirectory(tmp_path / "sim"), []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        seen.append((run.holder(), read(run).finished))
        yield

    play(run.path, planned(), watch, hours=0.01)
    assert seen[0][0] is not None
    assert seen[0][1] == ""
    assert run.holder() is None


def test_a_damaged_mark_is_told(tmp_path: Path) -> None:
    play(tmp_path / "sim", planned(), hours=0.01)
    run = RunDirectory(tmp_path / "sim")
    run.simulation_file.write_text("{")
    with pytest.raises(CorruptionError, match=r"simulation\.json is damaged"):
        read(run)


def test_a_python_call_leaves_a_folder_too(tmp_path: Path) -> None:
    report = call(RUN, hours=0.02, run_dir=tmp_path / "sim")
    assert LedgerHash(decisions(tmp_path / "sim")).hexdigest() == report.ledger_hash


@pytest.fixture
def simulated(tmp_path: Path) -> Path:
    play(tmp_path / "runs" / "sim", planned(), hours=0.05)
    return tmp_path / "runs" / "sim"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    assert ended.value.code == 0, captured.err
    return captured.out


def test_status_says_that_it_is_simulated(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, "status", str(simulated))
    assert "simulated, finished: the time is up" in shown
    assert "100.0% of 0.05 virtual hours" in shown
    assert "simulated with 4 nodes, work as costs alone, for 0.05 virtual hours, seed 0" in shown
    assert "there is nothing to resume" in shown
    assert "resume " not in shown.replace("to resume", "")
    found = json.loads(told(capsys, "status", str(simulated), "--json"))
    assert (found["simulated"], found["model_dir"], found["progress"]) == (True, None, 1.0)


def test_other_readers_take_it_for_a_run(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ann" in told(capsys, "story", str(simulated), "ann")
    assert "joined" in told(capsys, "events", str(simulated), "--follow")
    with RunList(simulated.parent) as runs:
        (row,) = runs.read()
    assert (row.state, row.news, row.progress, row.workers) == ("finished", "simulated", 1.0, 4)
    assert run_at(simulated).state == OVER


def test_report_has_the_charts_of_what_there_is(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "report", str(simulated))
    text = (simulated / "report.md").read_text()
    assert "The run is simulated. It is finished: the time is up." in text
    assert "timeline.png" in text
    assert (simulated / "report" / "timeline.png").stat().st_size > 1000
    assert "loss.png" not in text
    assert not (simulated / "report" / "loss.png").exists()


@pytest.mark.parametrize(
    ("command", "deed"),
    [
        (["resume"], "resume"),
        (["finish"], "finish"),
        (["pause"], "pause"),
        (["continue"], "continue"),
        (["forecast"], "forecast"),
        (["export"], "export"),
        (["try"], "try"),
        (["verify"], "verify"),
        (["invite"], "invite to"),
        (["invites"], "invite to"),
        (["revoke", "ann"], "revoke"),
    ],
)
def test_commands_that_need_a_real_run_refuse_it(
    command: list[str], deed: str, simulated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(simulated.rglob("*"))
    assert main([command[0], str(simulated), *command[1:]]) == 2
    assert f"{simulated} is a simulation's: there is nothing to {deed}" in capsys.readouterr().err
    assert sorted(simulated.rglob("*")) == before


def test_calls_that_need_a_real_run_refuse_it(simulated: Path) -> None:
    run = RunDirectory.open(simulated)
    for act in (
        lambda: requests.put(run, requests.FinishRun("enough")),
        lambda: recorded_plan(run),
        lambda: export_model(run),
    ):
        with pytest.raises(RunDirectoryError, match="is a simulation's: there is nothing to"):
            act()
