"""How a run is interrupted, resumed, finished early and given up, and who is put out of it, as a user does it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from barnraise.core.errors import DIVERGED
from barnraise.core.signals import COME_AGAIN
from barnraise.ledger import RunDirectory, notes
from barnraise.ledger.view import LedgerView

from .conftest import BARNRAISE, Process
from .test_train import once_in_versions, view_of

pytestmark = pytest.mark.slow

ENDLESS = {"tokens": 50_000_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}


def run_dir_of(process: Process) -> Path:
    return Path(process.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1]))


def accepted(run_dir: Path, count: int) -> Callable[[str], bool]:
    """Return whether the given number of contributions is accepted."""

    def reached(_: str) -> bool:
        view = view_of(run_dir)
        return view is not None and view.totals().accepted >= count

    return reached


def finished(run_dir: Path) -> list[str]:
    with LedgerView(run_dir / "ledger.sqlite") as view:
        return [note.reason for _, note in view.events(notes.Finished)]


def both_contribute(run_dir: Path):
    def found(_: str) -> bool:
        with LedgerView(run_dir / "ledger.sqlite") as view:
            return {d.node for _, d in view.replay() if type(d).__name__ == "Judged"} == {"one", "two"}

    return found


@pytest.mark.campaign
def test_an_interrupted_run_trains_on_and_is_finished_early(barnraise, run_file) -> None:
    train = barnraise("train", str(run_file(training=ENDLESS)), "--json")
    run_dir = run_dir_of(train)
    train.wait_for(accepted(run_dir, 5))
    train.wait_for(both_contribute(run_dir))
    train.popen.send_signal(signal.SIGINT)
    assert train.wait() == 130, train.text()
    assert train.text().splitlines()[-1] == f"train on: barnraise resume {run_dir}"
    assert finished(run_dir) == []
    with LedgerView(run_dir / "ledger.sqlite") as view:
        before = view.totals()
        assert view.events(notes.Checkpointed)[-1][1].version == before.version
        changes = [d for _, d in view.replay() if type(d).__name__ == "NodeChanged" and d.change == "left"]
    assert {change.node for change in changes} == {"one", "two"}, "they did not hand in what they had"
    resumed = barnraise("resume", str(run_dir), "--json")
    resumed.wait_for(accepted(run_dir, before.accepted + 5))
    finish = barnraise("finish", str(run_dir), "--json")
    assert finish.wait() == 0, finish.text() + resumed.text()
    assert resumed.wait() == 0, resumed.text()
    assert finished(run_dir) == ["asked to finish"]
    assert finish.json() == resumed.json()
    assert finish.json()["versions"] > before.version
    assert (run_dir / "model" / "config.json").is_file()
    assert list((run_dir / "requests").iterdir()) == []
    once_in_versions(run_dir)


def test_a_run_without_workers_is_finished(barnraise, run_file) -> None:
    train = barnraise("train", str(run_file(training=ENDLESS)), "--json")
    run_dir = run_dir_of(train)
    train.wait_for(accepted(run_dir, 5))
    train.kill()
    finish = barnraise("finish", str(run_dir), "--json")
    assert finish.wait() == 0, finish.text()
    assert finished(run_dir) == ["asked to finish"]
    assert finish.json()["final_loss"] is not None
    assert (run_dir / "model" / "config.json").is_file()
    once_in_versions(run_dir)
    again = barnraise("finish", str(run_dir), "--json")
    assert again.wait() == 0, again.text()
    assert again.json() == finish.json()


@pytest.mark.campaign
def test_the_host_pauses_a_run_which_rests_through_a_crash_until_it_is_continued(barnraise, run_file) -> None:
    def given() -> int:
        with LedgerView(run_dir / "ledger.sqlite") as view:
            return len(view.assignments())

    def told(*arguments: str) -> str:
        command = barnraise(*arguments)
        assert command.wait() == 0, command.text()
        return command.out.read_text()

    def rests(process: Process, seconds: float = 3.0) -> None:
        """Check that no task is given for a while, though workers are there."""
        process.wait_for(both_live)
        before, until = given(), time.monotonic() + seconds
        process.wait_for(lambda _: time.monotonic() > until or given() > before)
        assert given() == before
        assert json.loads(told("status", str(run_dir), "--json"))["state"] == "paused"

    def both_live(_: str) -> bool:
        with LedgerView(run_dir / "ledger.sqlite") as view:
            return {node.node for node in view.nodes() if node.change == "joined"} == {"one", "two"}

    train = barnraise("train", str(run_file(training=ENDLESS)), "--plain")
    run_dir = run_dir_of(train)
    train.wait_for(accepted(run_dir, 5))
    assert told("pause", str(run_dir), "--reason", "night").splitlines() == [
        "the run is paused", f"to continue it: barnraise continue {run_dir}"
    ]  # fmt: skip
    assert told("pause", str(run_dir)).startswith("the run is paused already: the host paused the run: night\n")
    rests(train)
    train.wait_for(lambda text: "  paused: the host paused the run: night" in text)
    train.kill()
    resumed = barnraise("resume", str(run_dir), "--plain")
    resumed.wait_for(lambda text: "controller was started again" in text or "paused: the host" in text)
    rests(resumed)
    assert told("story", str(run_dir), "one").count("one waits: the host paused the run: night") >= 1
    assert told("continue", str(run_dir)) == "the run continues\n"
    with LedgerView(run_dir / "ledger.sqlite") as view:
        count = view.totals().accepted
    resumed.wait_for(accepted(run_dir, count + 5))
    assert told("continue", str(run_dir)) == "the host has not paused the run\n"
    resumed.kill()
    assert (
        told("pause", str(run_dir)).splitlines()[0] == "the run is paused as soon as it resumes; no controller runs now"
    )
    again = barnraise("resume", str(run_dir), "--plain")
    again.wait_for(lambda text: "paused: the host paused the run" in text)
    rests(again)
    finish = barnraise("finish", str(run_dir), "--json")
    assert finish.wait() == 0, finish.text() + again.text()
    assert again.wait() == 0, again.text()
    assert finished(run_dir) == ["asked to finish"]
    refused = barnraise("pause", str(run_dir))
    assert refused.wait() == 2
    assert "is over: asked to finish; it cannot be paused" in refused.text()
    once_in_versions(run_dir)


@pytest.mark.parametrize("command", ["train", "serve"])
def test_nothing_is_left_of_a_run_that_is_interrupted_while_it_is_made(barnraise, run_file, tmp_path, command) -> None:
    data = {
        "kind": "sat", "variables": [4, 6], "clause_ratio": 4.26, "clause_lengths": [3, 3], "context": 640,
        "examples": 1_000_000, "held_out": 100,
    }  # fmt: skip
    process = barnraise(command, str(run_file(data=data)))
    process.wait_for(lambda text: "making the dataset" in text)
    process.popen.send_signal(signal.SIGINT)
    assert process.wait() == 130, process.text()
    assert "interrupted before the run began" in process.text().splitlines()[-1]
    assert "Traceback" not in process.text()
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.campaign
def test_a_reader_that_goes_away_costs_nothing(run_file, tmp_path: Path) -> None:
    """`barnraise train RUN.yaml 2>&1 | head -1`."""
    command = [*BARNRAISE, "train", str(run_file(training={**ENDLESS, "tokens": 20_000})), "--json"]
    train = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert train.stdout is not None
    run_dir = Path(train.stdout.readline().split()[-1])
    train.stdout.close()
    assert train.wait(240) == 0
    assert (run_dir / "model" / "config.json").is_file()
    assert (run_dir / "report.md").is_file()


@pytest.mark.campaign
def test_train_ends_with_the_reason_once_no_worker_can_live(barnraise, run_file) -> None:
    train = barnraise("train", str(run_file(training=ENDLESS, workers=[{"name": "one"}])))
    run_dir = run_dir_of(train)
    process = psutil.Process(train.popen.pid)

    def ended(_: str) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            for worker in [worker for forkserver in process.children() for worker in forkserver.children()]:
                worker.kill()
        return train.popen.poll() is not None

    train.wait_for(ended)
    assert train.wait() == 1
    assert len(re.findall(r"worker 'one' broke down \(killed by signal 9\)", train.text())) == 3
    assert "error: no worker is left ('one': killed by signal 9)" in train.text()
    assert train.text().splitlines()[-1] == f"continue the run with: barnraise resume {run_dir}"
    assert finished(run_dir) == []


@pytest.mark.campaign
def test_train_ends_at_once_when_training_diverges(barnraise, run_file) -> None:
    """Nobody is started again for more of the same."""
    train = barnraise("train", str(run_file(training={**ENDLESS, "learning_rate": 1e30})))
    run_dir = run_dir_of(train)
    assert train.wait() == 1, train.text()
    assert "broke down" not in train.text()
    assert re.search(rf"error: no worker is left \('one'.*: {DIVERGED}: .*; before you resume the run", train.text())
    assert f"lower training.learning_rate, which is 1e+30, in {run_dir / 'run.yaml'}" in train.text()
    assert "Traceback" not in train.text()
    assert finished(run_dir) == []


@pytest.mark.campaign
def test_two_joins_on_one_machine_and_one_is_put_out(barnraise, run_file, tmp_path: Path) -> None:
    serve = barnraise("serve", str(run_file(training=ENDLESS, workers=[])))
    run_dir = run_dir_of(serve)
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])
    secret = Path(invite.removeprefix("@")).read_text().split("#")[1].strip()
    assert secret not in serve.text(), "a log holds the secret"
    arguments = ("join", invite, "--name", "guest", "--threads", "1", "--home", str(tmp_path / "home"))
    first = barnraise(*arguments)
    first.wait_for(lambda text: "joined run" in text)
    second = barnraise(*arguments)
    second.wait_for(lambda text: "joining as 'guest-2'" in text)
    second.wait_for(lambda _: {"guest", "guest-2"} <= contributors(run_dir))
    assert not any(secret in " ".join(process.cmdline()) for process in psutil.process_iter() if alive(process))
    revoke = barnraise("revoke", str(run_dir), "guest-2", "--reason", "it lies")
    assert revoke.wait() == 0, revoke.text()
    assert "admits 98 more" in revoke.text()
    assert second.wait(60) == 2
    assert "revoked this machine's membership: it lies" in second.text()
    before = RunDirectory.open(run_dir)
    with LedgerView(before.ledger) as view:
        count = {node.node: node.outcomes.accepted for node in view.nodes()}
    first.wait_for(accepted(run_dir, sum(count.values()) + 5))
    with LedgerView(before.ledger) as view:
        assert {node.node: node.change for node in view.nodes()} == {"guest": "joined", "guest-2": "revoked"}
        late = {node.node: node.outcomes.accepted for node in view.nodes()}["guest-2"] - count["guest-2"]
    assert late <= 1  # which had arrived before
    assert barnraise("revoke", str(run_dir), f"@{run_dir}/keys/invite").wait() == 0
    third = barnraise("join", invite, "--name", "new", "--home", str(tmp_path / "elsewhere"))
    assert third.wait() == 2
    assert "taken this invite back" in third.text()
    serve.kill()
    first.popen.send_signal(signal.SIGTERM)
    assert first.wait(60) in (1, COME_AGAIN), "a join whose controller is gone cannot be stopped"
    assert "the controller does not answer" in first.text()


def test_an_owner_lends_a_machine_on_terms(barnraise, run_file, tmp_path: Path) -> None:
    serve = barnraise("serve", str(run_file(training=ENDLESS, workers=[])))
    run_dir = run_dir_of(serve)
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])

    def join(name: str, *terms: str):
        return barnraise("join", invite, "--name", name, "--threads", "1", "--home", str(tmp_path / "home"), *terms)

    small, brief = join("small", "--max-memory", "1MiB"), join("brief", "--hours", "0.001")
    able, idle = join("able", "--max-memory", "2GB"), join("idle", "--only", "evaluate")
    assert small.wait(60) == 1
    assert "this run's model and one row of its batches need about" in small.text()
    assert "but 1.0 MB are available; lend more of it (--max-memory)" in small.text()
    assert brief.wait(60) == COME_AGAIN, brief.text()
    assert "its owner lends the machine for 4 s, which are over" in brief.text()
    idle.wait_for(lambda text: "joined run" in text)
    able.wait_for(accepted(run_dir, 5))
    assert "idle" not in contributors(run_dir)
    bad = join("bad", "--only", "evalute")
    assert bad.wait(60) == 2
    assert "evaluate" in bad.text()
    assert "Traceback" not in bad.text() + small.text()


def contributors(run_dir: Path) -> set[str]:
    with LedgerView(run_dir / "ledger.sqlite") as view:
        return {node.node for node in view.nodes() if node.outcomes.accepted}


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_a_join_that_waits_to_be_let_in_can_be_stopped(barnraise, run_file, tmp_path: Path) -> None:
    serve = barnraise("serve", str(run_file(workers=[])))
    invite = serve.wait_for(lambda text: (m := re.search(r"barnraise join '(.*)'", text)) and m[1])
    serve.popen.send_signal(signal.SIGSTOP)  # it listens, and never answers
    try:
        join = barnraise("join", invite, "--home", str(tmp_path / "home"))
        join.wait_for(lambda _: list((tmp_path / "home").rglob("keys.json")))
        join.popen.send_signal(signal.SIGINT)
        assert join.wait(60) in (COME_AGAIN, 130), join.text()
    finally:
        serve.popen.send_signal(signal.SIGCONT)


SECOND = """
import asyncio
from barnraise.core.signals import on_signals

async def main():
    with on_signals(lambda name: print(name, flush=True), lambda: print("last words", flush=True)):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_second_signal_ends_a_command_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", SECOND], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:  # the same signal within a second counts once
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.1)
        assert process.stdout.read() == "SIGINT\nlast words\n"
    assert process.returncode == 130
