"""Workers measure the held-out loss, in real processes with real tensors.

The controller builds the model only when a worker is lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnraise.assembly.parts import evaluator_of
from barnraise.config import load
from barnraise.data.shards import Dataset
from barnraise.ledger import Checkpoints, LedgerView, RunDirectory, notes
from barnraise.plan import Purpose, resolve
from barnraise.wire.manifest import Manifest

TRAIN = """
import os, signal, sys
import barnraise
from barnraise.controller.versions import evaluation
from barnraise.assembly.local_workers import LocalWorkers
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.versions.evaluation import Evaluation

kill = sys.argv[1:] == ["kill"]
workers, killed, built, give, build = [], [], [], Evaluation.give, Evaluator.build
begin = LocalWorkers.__init__

def watched(self, *arguments, **options):
    workers.append(self)
    begin(self, *arguments, **options)

def give_and_kill(self, node, have, lost):
    yield from give(self, node, have, lost)
    if kill and self.state.newest.version and not killed:
        killed.append("killed")
        os.kill(workers[0].pids[node.id], signal.SIGKILL)

def build_and_tell(self):
    built.append("built")
    build(self)

LocalWorkers.__init__, Evaluation.give, Evaluator.build = watched, give_and_kill, build_and_tell
evaluation.PATIENCE = 10.0 if kill else 200.0
ending = barnraise.train("run.yaml", say=lambda text: None)
print(ending.run_dir, *killed, *built[:1])
"""


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_losses_are_those_that_the_controller_would_have_measured(
    kill: bool, run_file: Callable[..., Path], tmp_path: Path
) -> None:
    controller = {
        "evaluated_by": "workers", "evaluations": 6, "evaluation_rows": 50, "checkpoint_seconds": 0.1, "lease": 30,
        "keep_checkpoints": 100,
    }  # fmt: skip
    workers = [{"name": name} for name in ("one", "two", "three")]
    training = {"tokens": 60_000, "batch_size": 4, "local_steps": 4, "learning_rate": 0.003}
    training |= {"downlink_compression": "int4", "outer_optimizer": "delayed_nesterov"}  # with a residual and momentum
    path = run_file(controller=controller, workers=workers, training=training)
    (tmp_path / "script.py").write_text(TRAIN)
    done = subprocess.run(
        [sys.executable, "script.py", *["kill"] * kill],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=240,
        check=True,
    )
    run_dir, *happened = done.stdout.split()
    assert kill == ("killed" in happened)
    assert kill or not happened, "the controller built the model"
    run = RunDirectory(Path(run_dir))
    with LedgerView(run.ledger) as view:
        told = {note.version: note.loss for _, note in view.events(notes.Evaluated)}
        assert kill or {note.owners for _, note in view.events(notes.Evaluated)} == {2}
        assert not view.events(notes.Disputed)
        measured = [decision for _, decision in view.replay() if getattr(decision, "kind", "") == "evaluate"]
        assert view.totals().found >= len(told)
    assert {decision.node for decision in measured} <= {"one", "two", "three"}
    plan, dataset = resolve(load(path), purpose=Purpose.TRAIN), Dataset.open(run.data)
    manifest = Manifest.decode((run.path / "manifest.json").read_bytes())
    evaluator, compared = evaluator_of(plan, manifest.model, plan.exchange(manifest.model), dataset), 0
    for version, checkpoint in Checkpoints(run.checkpoints).readable().items():
        if version in told:
            parameters = checkpoint.tensors("parameters")["parameters"]
            assert told[version] == pytest.approx(evaluator.loss(evaluator.model_of(parameters)), abs=1e-5)
            compared += 1
    assert compared >= 2
    assert 0 in told
    assert max(told) == max(Checkpoints(run.checkpoints).readable())
