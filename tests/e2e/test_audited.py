"""Other workers repeat tasks, in real processes; the ledger and `story` show the result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from barnraise.ledger import LedgerView, RunDirectory, notes

BARNRAISE = [sys.executable, "-m", "barnraise.cli.main"]


@pytest.mark.campaign
@pytest.mark.slow
def test_half_of_the_contributions_are_audited_and_reported(run_file: Callable[..., Path], tmp_path: Path) -> None:
    training = {"tokens": 60_000, "batch_size": 4, "local_steps": 4, "learning_rate": 0.003, "audits": 0.5}
    training |= {"downlink_compression": "int4", "compression": "int8"}
    workers = [{"name": name} for name in ("one", "two", "three")]
    path = run_file(controller={"evaluation_rows": 50}, workers=workers, training=training)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*BARNRAISE, "train", str(path), "--json"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment, timeout=240, check=True,
    )  # fmt: skip
    (folder,) = (tmp_path / "runs").iterdir() if (tmp_path / "runs").exists() else tmp_path.glob("*/ledger.sqlite")
    run = RunDirectory(folder)
    with LedgerView(run.ledger) as view:
        told = [(d.node, d.note) for _, d in view.replay() if isinstance(getattr(d, "note", None), notes.Audited)]
    assert len(told) >= 10
    assert all(node != note.by for node, note in told)
    assert median(note.cosine for _, note in told) > 0.5, "moments of one's own make a difference, but not that much"
    audited = told[0][1]
    story = subprocess.run(
        [*BARNRAISE, "story", str(folder), str(audited.audited)],
        stdout=subprocess.PIPE, text=True, env=environment, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert f"repeated by {audited.by} as {audited.assignment}" in " ".join(story.split())
    assert done.stdout
    status = subprocess.run(
        [*BARNRAISE, "status", str(folder)], stdout=subprocess.PIPE, text=True, env=environment, timeout=60, check=True
    ).stdout
    assert f"{len(told)} contributions repeated by other nodes" in " ".join(status.split())
    assert "of the loss by workers" not in status
