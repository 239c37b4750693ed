"""Many real workers on one machine: all of them take part while some are killed, some leave and others come."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.ledger.view import LedgerView

from .test_train import once_in_versions

WORKERS = [f"w{number}" for number in range(12)]
KILLED, LEAVING, NEW = WORKERS[:2], WORKERS[2:4], ["new0", "new1"]


@pytest.mark.campaign
@pytest.mark.slow
def test_a_dozen_workers_take_part_while_some_come_and_go(barnraise, run_file) -> None:
    faults = [
        {"at": 0.4, "do": "kill", "nodes": KILLED},
        {"at": 0.45, "do": "preempt", "nodes": LEAVING, "seconds": 60},
        *({"at": 0.45, "join": {"name": name}} for name in NEW),
    ]
    file = run_file(
        workers=[{"name": name} for name in WORKERS],
        faults=faults,
        data={"kind": "text", "files": ["text.txt"], "context": 32},
        training={"tokens": 250_000, "batch_size": 4, "local_steps": 10, "learning_rate": 0.003},
        controller={"evaluations": 1, "evaluation_rows": 16},
    )
    train = barnraise("train", str(file), "--json")
    assert train.wait() == 0, train.text()
    result = train.json()
    assert result["refused"] == 0
    assert "broke down" not in train.text()
    run_dir = Path(result["run_dir"])
    once_in_versions(run_dir)
    with LedgerView(run_dir / "ledger.sqlite") as view:
        decisions = [decision for _, decision in view.replay()]
    gone: dict[str, list[str]] = {}
    for d in decisions:
        if type(d).__name__ == "NodeChanged" and d.change not in ("enrolled", "joined"):
            gone.setdefault(d.node, []).append(d.change)
    assert {d.node for d in decisions if getattr(d, "verdict", "") == "accepted"} == {*WORKERS, *NEW}
    assert all(gone[name][0] == "killed" for name in KILLED), gone
    assert all(gone[name][0] == "left" for name in LEAVING), gone
    assert not {change for changes in gone.values() for change in changes} & {"broke", "silent", "missing"}, gone
