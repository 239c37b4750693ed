"""A run whose updates are masked: its trustees, a controller that is killed, the resume, and the verification."""

from __future__ import annotations

import re
from pathlib import Path

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger import LedgerView, RunDirectory, notes

MASKED = {
    "training": {
        "tokens": 40_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003, "compression": "none",
    },
    "controller": {"evaluations": 4, "evaluation_rows": 16, "checkpoint_seconds": 2.0, "keep_payloads": True},
    "privacy": {"secure_aggregation": {"trustees": 4, "colluding": 1}},
}  # fmt: skip


def test_a_masked_run_survives_its_controller_and_can_be_verified(barnraise, run_file) -> None:
    train = barnraise("train", str(run_file(**MASKED)), "--json")
    run = RunDirectory(Path(train.wait_for(lambda text: re.search(r"run directory (\S+)", text)).group(1)))

    def unmasked(text: str) -> bool:
        try:
            with LedgerView(run.ledger) as view:
                return len(view.events(notes.VersionUnmasked)) >= 2
        except RunDirectoryError:  # it is not there yet, or has no tables yet
            return False

    train.wait_for(unmasked)
    train.kill()
    resumed = barnraise("resume", str(run.path), "--json")
    assert resumed.wait() == 0, resumed.text()
    assert resumed.json()["tokens"] >= 40_000
    with LedgerView(run.ledger) as view:
        versions = [note.version for _, note in view.events(notes.VersionUnmasked)]
        losses = [note.loss for _, note in view.events(notes.Evaluated)]
    for log in sorted(run.logs.glob("worker-[!t]*.log"))[:2]:
        told = log.read_text()
        assert "found it in the list that a quorum of the trustees signed" in told
        assert (found := re.search(r"(\d+) of (\d+) masked updates? proven to be in versions", told)), told
        assert int(found[1]) >= 1
        assert "WARNING" not in told
    assert len(set(versions)) == len(versions), "masks come off a version once"
    assert losses[-1] < losses[0]
    verified = barnraise("verify", str(run.path))
    assert verified.wait() == 3, verified.text()  # nothing can repeat stateful work
    assert re.search(r"versions +sound", verified.text()), verified.text()


def test_a_lab_starts_no_trustees(barnraise, run_file) -> None:
    refused = barnraise("lab", str(run_file(**MASKED)))
    assert refused.wait() == 2
    assert "privacy.secure_aggregation: is given, and this is a lab" in refused.text()
