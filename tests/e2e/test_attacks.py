"""Attackers of a run file, as `train` starts them: processes of their own, beside honest ones."""

from __future__ import annotations

import json
import signal
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from barnraise.ledger import Assigned, Judged, Noted, notes
from barnraise.ledger.view import LedgerView

from ..campaigns import some


@pytest.mark.campaign
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


MATRIX: dict[str, Any] = {
    "run": {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 16, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "sat", "variables": [3, 3], "clause_lengths": [1, 3], "context": 48, "examples": 200},
        "training": {"tokens": 8000, "batch_size": 4, "local_steps": 2, "auto_tune": False},
    },
    "attacks": ["zero"],
    "rules": ["mean"],
    "liars": ["1 of 3"],
    "seeds": list(range(40)),
}


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("number", some((signal.SIGINT,), (signal.SIGTERM, signal.SIGINT)))
def test_an_interrupted_matrix_says_how_to_continue(barnraise, tmp_path: Path, number: int) -> None:
    (tmp_path / "matrix.yaml").write_text(json.dumps(MATRIX))
    process = barnraise("attack", "matrix.yaml", "--processes", "1")
    process.wait_for(lambda text: "1/120 " in text)
    process.popen.send_signal(number)
    assert process.wait(60) == 130, process.text()
    text = process.text()
    assert "interrupted; matrix keeps the results so far, and the same command continues" in text
    assert "Traceback" not in text
    assert "leaked" not in text
    known = len((tmp_path / "matrix" / "results.jsonl").read_text().splitlines())
    again = barnraise("attack", "matrix.yaml", "--processes", "1")
    again.wait_for(lambda text: f"{known + 1}/120 " in text)
    again.popen.send_signal(number)
    assert again.wait(60) == 130, again.text()


@pytest.mark.campaign
@pytest.mark.slow
def test_a_node_that_does_not_train_is_discredited_and_reported(barnraise, run_file) -> None:
    """Real processes train, and no node could repeat their tasks.

    The uploads of two of the four workers have nothing to do with their rows.
    """
    workers = [{"name": "one"}, {"name": "two"}, {"name": "three"}, {"name": "four", "attack": {"kind": "zero"}}]
    training = {"tokens": 5_000_000, "batch_size": 8, "local_steps": 15, "learning_rate": 0.003, "scores": 0.4}
    names = (
        "argparse",
        "doctest",
        "inspect",
        "pydoc",
        "tarfile",
        "typing",
    )  # with much in them that has to be learnt by heart
    files = [f"{sysconfig.get_path('stdlib')}/{name}.py" for name in names]
    data = {"kind": "text", "files": files, "context": 64}
    process = barnraise("train", str(run_file(workers=workers, training=training, data=data)), "--json")
    assert process.wait(240) == 0, process.text()
    result = process.json()
    with LedgerView(Path(result["run_dir"]) / "ledger.sqlite") as view:
        noted = [decision for _, decision in view.replay() if isinstance(decision, Noted)]
    scored = [one for one in noted if isinstance(one.note, notes.Scored)]
    assert not any(one.note.passed for one in scored if one.node == "four")
    assert {one.node for one in noted if isinstance(one.note, notes.Discredited)} == {"four"}
    story = barnraise("story", result["run_dir"], "four")
    assert story.wait() == 0
    told = " ".join(story.text().split())
    assert "it does not pass" in told
    status = barnraise("status", result["run_dir"])
    assert status.wait() == 0
    assert f"{len(scored)} contributions scored" in " ".join(status.text().split())
    assert "four is discredited" in told
