"""The embedded way, with real processes: train to the end, survive a killed worker and a killed controller."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger.evidence import Signatures
from barnraise.ledger.view import LedgerView

KEYS = {
    "run_dir", "model_dir", "versions", "tokens", "seconds", "tokens_per_second", "first_loss", "final_loss",
    "bytes_up", "bytes_down", "snapshot_bytes", "accepted", "refused", "discarded", "workers",
}  # fmt: skip


def view_of(run_dir: Path) -> LedgerView | None:
    """The run's ledger, None while there is none yet."""
    try:
        return LedgerView(run_dir / "ledger.sqlite")
    except RunDirectoryError:
        return None


def once_in_versions(run_dir: Path) -> None:
    """Every accepted contribution is in exactly one version, and nothing else is in any."""
    with LedgerView(run_dir / "ledger.sqlite") as view:
        decisions = [decision for _, decision in view.replay()]
    accepted = [d.assignment for d in decisions if getattr(d, "verdict", "") == "accepted"]
    in_versions = [a for d in decisions if type(d).__name__ == "VersionClosed" for a in d.contributions]
    assert sorted(accepted) == sorted(in_versions)
    assert len(set(accepted)) == len(accepted)


@pytest.mark.slow
def test_train_learns_and_reports(barnraise, run_file) -> None:
    faults = [{"at": 0.3, "kill": "two"}, {"at": 0.3, "join": {"name": "three", "speed": 1.0}}]
    training = {"tokens": 300_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}
    process = barnraise("train", str(run_file(faults=faults, training=training)), "--log", "json")
    assert process.wait() == 0, process.text()
    log = [json.loads(line) for line in process.out.read_text().splitlines()]
    assert {one["event"] for one in log} >= {"note", "happening", "progress", "end"}
    assert [one["event"] for one in log].index("end") == len(log) - 1
    assert {one["node"] for one in log if one.get("kind") == "joined"} >= {"one", "two", "three"}
    result = process.json()
    assert set(result) >= KEYS
    assert result["final_loss"] < result["first_loss"] - 0.5
    assert result["tokens"] >= 300_000
    assert result["workers"] >= 2
    once_in_versions(Path(result["run_dir"]))
    tried = barnraise("try", result["run_dir"], "5 plus 6", "--tokens", "8", "--temperature", "0", "--json")
    assert tried.wait() == 0, tried.text()
    assert set(tried.json()) == {"prompt", "completion"}
    assert result["signed"] == result["accepted"]
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(result["model_dir"])
    with LedgerView(Path(result["run_dir"]) / "ledger.sqlite") as view:
        rows, proof = [row for _, row in view.replay()], Signatures()
    assert [reason for row in rows if (reason := proof.wrong(row))] == []
    assert proof.signed >= result["accepted"]
    assert not proof.unsigned
    changes = [(d.node, d.change, d.reason) for d in rows if type(d).__name__ == "NodeChanged"]
    assert any(node == "two" and change == "killed" and "signal 9" in reason for node, change, reason in changes)
    assert any(node == "three" and change == "joined" for node, change, _ in changes)


@pytest.mark.campaign
@pytest.mark.slow
def test_a_worker_hangs_and_another_gets_notice(barnraise, run_file) -> None:
    """The first worker returns when its process continues; the second uploads its result and leaves by itself."""
    faults = [
        {"at": 0.2, "do": "hang", "node": "one", "seconds": 4.0},
        {"at": 0.6, "do": "preempt", "node": "two", "seconds": 60.0},
    ]
    process = barnraise("train", str(run_file(faults=faults)), "--json")
    assert process.wait() == 0, process.text()
    result = process.json()
    once_in_versions(Path(result["run_dir"]))
    with LedgerView(Path(result["run_dir"]) / "ledger.sqlite") as view:
        decisions = [decision for _, decision in view.replay()]
    changes = [(d.node, d.change, d.reason) for d in decisions if type(d).__name__ == "NodeChanged"]
    one = [change for node, change, _ in changes if node == "one"]
    assert "silent" in one
    assert "joined" in one[one.index("silent") :]
    assert ("two", "left") in [change[:2] for change in changes]
    assert not any(change == "killed" for _, change, _ in changes)


@pytest.mark.slow
def test_a_killed_controller_resumes(barnraise, run_file, tmp_path: Path) -> None:
    first = barnraise("train", str(run_file()), "--json")
    run_dir = Path(first.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1]))

    def versions(_: str) -> bool:
        view = view_of(run_dir)
        return view is not None and len(view.versions()) >= 6

    first.wait_for(versions)
    first.kill()
    kept = {path.name for path in (run_dir / "moments").glob("*.safetensors")}
    assert kept <= {"one.safetensors", "two.safetensors"}
    assert kept
    resumed = barnraise("resume", str(run_dir), "--json")
    assert resumed.wait() == 0, resumed.text()
    assert not (run_dir / "moments").exists()
    assert all("moments" not in path.read_text() for path in (run_dir / "logs").glob("worker-*.log"))
    result = resumed.json()
    assert result["tokens"] >= 120_000
    once_in_versions(run_dir)
    with LedgerView(run_dir / "ledger.sqlite") as view:
        assert view.epoch == 2
        assert result["accepted"] == view.totals().accepted


@pytest.mark.campaign
@pytest.mark.slow
def test_a_controller_that_dies_as_planned_comes_back_to_the_workers_that_it_left(barnraise, run_file) -> None:
    """At a journal boundary and at a time, by SIGKILL; its disk is full for a while, slow for another, and its clock
    jumps."""
    faults = [
        {"at_decisions": 40, "do": "kill_controller", "seconds": 0.5},
        {"at": 0.3, "do": "full_disk", "seconds": 1.0},
        {"at": 0.4, "do": "slow_disk", "seconds": 1.0, "by_seconds": 0.2},
        {"at": 0.6, "do": "hang", "node": "one", "seconds": 600.0},
        {"at": 0.62, "do": "kill_controller", "seconds": 0.1},
        {"at": 0.8, "do": "clock_jump", "by_seconds": 100.0},
    ]
    process = barnraise("train", str(run_file(faults=faults)), "--json")
    assert process.wait() == 0, process.text()
    result, text = process.json(), process.text()
    run_dir = Path(result["run_dir"])
    once_in_versions(run_dir)
    assert "s more; nothing is lost" in text, "nothing was refused by a full disk"
    assert "the disk takes the ledger again, after" in text
    assert text.count("should this be interrupted") == 3
    with LedgerView(run_dir / "ledger.sqlite") as view:
        assert view.epoch == 3
        assert result["accepted"] == view.totals().accepted
        sessions = [(d.node, d.session) for _, d in view.replay() if getattr(d, "change", "") == "joined"]
    assert result["seconds"] > 100, "its clock did not jump"
    assert len(set(sessions)) == 2, "a worker's process did not outlive the controller's"


@pytest.mark.campaign
@pytest.mark.slow
def test_train_over_slow_links(barnraise, run_file) -> None:
    training = {"tokens": 25_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003, "compression": "topk"}
    process = barnraise("train", str(run_file(training=training)), "--network", "cellular/1%", "--json")
    assert process.wait() == 0, process.text()
    result = process.json()
    assert result["final_loss"] < result["first_loss"]
    assert "profile: cellular/1%" in (Path(result["run_dir"]) / "run.yaml").read_text()
    once_in_versions(Path(result["run_dir"]))
