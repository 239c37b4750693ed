"""The warnings of a run that no node works on any more."""

from __future__ import annotations

from pathlib import Path

from barnraise.assembly.session import why_nobody_is_left
from barnraise.config.schema import TrainingSection
from barnraise.ledger import RunDirectory
from barnraise.worker.machine import NOT_FINITE

TRAINING = TrainingSection(tokens=1000, learning_rate=2.5, gradient_clip=None)
RUN = RunDirectory(Path("run"))


def test_equal_reasons_are_told_once() -> None:
    reasons = {"a": "killed by signal 9", "b": "OSError: disk \x1b[2J", "c": "killed by signal 9"}
    told = why_nobody_is_left(reasons, TRAINING, RUN)
    assert told == "no worker is left ('a', 'c': killed by signal 9; 'b': OSError: disk [2J); logs are in run/logs"


def test_divergence_comes_with_what_to_do() -> None:
    told = why_nobody_is_left({"a": NOT_FINITE}, TRAINING, RUN)
    assert told.startswith("no worker is left ('a': training diverged: ")
    assert "before you resume the run, lower training.learning_rate, which is 2.5, in run/run.yaml" in told
    assert "a lower training.gradient_clip, which is null, takes a new run" in told
