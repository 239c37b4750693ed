"""Attackers of a run file, as `train` starts them: processes of their own, beside honest ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnraise.ledger import Assigned, Judged
from barnraise.ledger.view import LedgerView


@pytest.mark.slow
def test_attackers_of_a_run_file_attack_and_the_others_do_not(barnraise, run_file) -> None:
    workers = [
        {"name": "one"},
        {"name": "two", "attack": {"kind": "zero"}},
        {"name": "three", "attack": {"kind": "nan"}},
        {"name": "four", "attack": {"kind": "refuse", "share": 1}},
    ]
    process = barnraise("train", str(run_file(workers=workers)), "--json")
    assert process.wait() == 0, process.text()
    result = process.json()
    assert result["final_loss"] < result["first_loss"]
    with LedgerView(Path(result["run_dir"]) / "ledger.sqlite") as view:
        decisions = [decision for _, decision in view.replay()]
    judged = [decision for decision in decisions if isinstance(decision, Judged)]
    given = {
        decision.assignment for decision in decisions if isinstance(decision, Assigned) and decision.node == "four"
    }
    assert given
    assert not given & {one.assignment for one in judged}
    accepted = [one for one in judged if one.verdict == "accepted"]
    norms = {name: [one.norm for one in accepted if one.node == name] for name in ("one", "two")}
    assert max(norms["two"]) == 0.0
    assert min(norms["one"]) > 0.0
    refused = [one for one in judged if one.node == "three" and one.verdict == "refused"]
    assert refused
    assert all("NaN" in one.reason for one in refused)
    assert "three" not in {one.node for one in accepted}
