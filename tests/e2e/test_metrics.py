"""A run with metrics and samples: killed and resumed, taken over by a standby, and shown to its host."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from tests.e2e.test_standby import rows

from barnraise.ledger import LedgerView, RunDirectory, notes
from barnraise.verification import verify

FUNCTION = """
def length(module, rows, tokenizer):
    return float(rows["tokens"].shape[1])
def broken(module, rows, tokenizer):
    raise RuntimeError("\\x1b[2Jno")
"""
EVALUATION = {
    "times": 6,
    "rows": 8,
    "metrics": ["perplexity", "exact_match", "choice_accuracy", "own_metrics:length", "own_metrics:broken"],
    "samples": 2,
    "sample_tokens": 8,
}


def sections(folder: Path) -> dict[str, object]:
    (folder / "own_metrics.py").write_text(FUNCTION)
    records = [
        {"question": f"{n}: {n % 10} and one?", "choices": [f"{n % 10 + 1}", "none"], "answer": "A"} for n in range(200)
    ]
    (folder / "sums.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    data = {"kind": "instruct", "files": [str(folder / "sums.jsonl")], "context": 48, "held_out": 0.1}
    return {"data": data, "evaluation": EVALUATION, "controller": {"checkpoint_seconds": 1.0}}


def measured(run: RunDirectory) -> list[notes.Measured]:
    with LedgerView(run.ledger) as view:
        return [note for _, note in view.events(notes.Measured)]


@pytest.mark.campaign
@pytest.mark.timeout(400)
def test_a_killed_run_is_measured_to_its_end_and_shown(barnraise, run_file, tmp_path: Path) -> None:
    path = run_file(**sections(tmp_path))
    train = barnraise("train", str(path), "--json")
    run = RunDirectory(Path(train.wait_for(lambda text: re.search(r"run directory (\S+)", text)).group(1)))
    train.wait_for(lambda text: run.ledger.is_file() and rows(run.path, "SELECT 1 FROM events WHERE kind = 'measured'"))
    train.kill()
    before = measured(run)

    resumed = barnraise("resume", str(run.path), "--json")
    assert resumed.wait() == 0, resumed.text()
    told = resumed.json()
    after = measured(run)
    assert after[: len(before)] == before
    assert after[-1].version == told["versions"]
    assert set(told["metrics"]) == {"perplexity", "exact_match", "choice_accuracy", "length"}
    assert told["metrics"]["length"] == 48.0
    assert told["samples"]["version"] == told["versions"]
    assert [text["prompt"].endswith("and one?") for text in told["samples"]["texts"]] == [True, True]
    assert resumed.text().count("own_metrics:broken has no figure") == 1

    status = barnraise("status", str(run.path))
    assert status.wait() == 0
    assert f"exact_match {told['metrics']['exact_match']:.4g}, choice_accuracy" in status.text()
    assert re.search(rf"sample +version {told['versions']}: .* and one\? -> ", status.text())
    report = run.report.read_text()
    assert "| version | perplexity |" in report
    assert f"## Samples\n\nGreedy completions of the same prompts.\n\nVersion {told['versions']}:" in report
    assert "\x1b" not in report + status.text()
    assert verify(run).findings == []
    exported = {file.name for file in run.model.iterdir()}
    assert "tokenizer.json" in exported
    assert "questions.json" not in exported


@pytest.mark.campaign
@pytest.mark.timeout(400)
def test_a_standby_measures_with_its_copy_of_the_questions(barnraise, run_file, tmp_path: Path) -> None:
    controller = {"durability": "standby", "standby_lease": 2.0, "standby_patience": 3600.0, "checkpoint_seconds": 1.0}
    evaluation = EVALUATION | {"times": 10_000, "metrics": ["exact_match"]}
    training = {"tokens": 10**7, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003}
    changes = {"workers": [], "controller": controller, "evaluation": evaluation, "training": training}
    serve = barnraise("serve", str(run_file(**sections(tmp_path) | changes)))
    serve.wait_for(lambda text: "barnraise join" in text)
    run = next((tmp_path / "runs").iterdir())
    join = barnraise("join", f"@{run / 'keys' / 'invite'}", "--name", "one", "--home", str(tmp_path / "home"))
    invite = barnraise("invite", str(run), "--standby")
    assert invite.wait() == 0
    (tmp_path / "ticket").write_text(invite.out.read_text())
    standby = barnraise("standby", f"@{tmp_path / 'ticket'}", "--dir", str(tmp_path / "copies"))
    copy = tmp_path / "copies" / run.name
    standby.wait_for(lambda text: "can take over" in text)
    query = "SELECT epoch FROM events WHERE kind = 'measured' ORDER BY id DESC LIMIT 1"
    standby.wait_for(lambda text: (copy / "ledger.sqlite").is_file() and rows(copy, query))
    (epoch,) = rows(copy, query)[0]
    serve.kill()
    standby.wait_for(lambda text: "taking over" in text)
    standby.wait_for(lambda text: rows(copy, query)[0][0] > epoch)
    assert (copy / "data" / "questions.json").read_bytes() == (run / "data" / "questions.json").read_bytes()
    assert join.popen.poll() is None, join.text()
    os.kill(standby.popen.pid, signal.SIGINT)
    assert standby.wait(60) in (0, 130), standby.text()
    newest = measured(RunDirectory(copy))[-1]
    assert set(newest.values) == {"exact_match"}
    assert len(newest.samples) == 2
    assert verify(RunDirectory.open(copy)).findings == []
