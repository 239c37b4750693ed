"""When a checkpoint is taken: after some time, earlier when payloads take much room, later after a failure."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from barnraise.controller.state import effects
from barnraise.controller.state.settings import PatienceSettings
from barnraise.controller.versions.ending import Ending
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted

from ....state_machine.engine import Engine, contribution, engine_settings

SIZE = 420
"""Bytes of the payload of a contribution of the engine's."""


def run(**changes: Any) -> Engine:
    engine = Engine(engine_settings(**{"buffer_size": 1, "tokens": 10**9, "checkpoint_seconds": 1e6} | changes))
    engine.hello("a")
    return engine


def version(engine: Engine) -> None:
    """One more version, with all that is asked for but checkpoints."""
    engine.next("a")
    engine.offer("a", contribution(next(iter(engine.held["a"].values()))))
    while jobs := [job for job in engine.jobs if not isinstance(job, effects.Checkpoint)]:
        engine.answer(jobs[0])


def asked(engine: Engine) -> bool:
    """Whether a checkpoint is being taken."""
    return any(isinstance(job, effects.Checkpoint) for job in engine.jobs)


def answer(engine: Engine, *, good: bool = True) -> None:
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Checkpoint)), good=good)


@pytest.mark.parametrize("most", [1, 3, 10])
def test_payloads_of_some_size_bring_a_checkpoint_forward(most: int) -> None:
    engine, taken = run(checkpoint_bytes=most * SIZE), []
    for number in range(1, 31):
        version(engine)
        if asked(engine):
            taken.append(number)
            answer(engine)
    assert taken == list(range(most, 31, most))


def test_bytes_that_arrive_during_a_checkpoint_count_for_the_next() -> None:
    engine = run(checkpoint_bytes=3 * SIZE)
    for _ in range(5):
        version(engine)
    answer(engine)
    assert engine.machine.parts[Ending].unsaved == 2 * SIZE
    version(engine)
    assert asked(engine)


def test_a_checkpoint_that_fails_is_tried_again_at_growing_intervals() -> None:
    engine, tried = run(checkpoint_bytes=SIZE, checkpoint_seconds=60.0), []
    for second in range(400):
        engine.now = float(second)
        engine.heartbeat("a")
        version(engine)
        if asked(engine):
            tried.append(second)
            answer(engine, good=False)
    pauses = [later - sooner for sooner, later in pairwise(tried)]
    assert pauses[:6] == [2, 4, 8, 16, 32, 60]
    assert set(pauses[6:]) == {60}
    engine.now = 400.0 + 60.0
    engine.heartbeat("a")
    version(engine)
    answer(engine)
    assert engine.machine.parts[Ending].unsaved == 0
    version(engine)
    assert asked(engine), "the disk takes checkpoints again"


def test_after_a_restart_nothing_is_unsaved_that_is_not_known() -> None:
    engine = run(checkpoint_bytes=3 * SIZE)
    for _ in range(2):
        version(engine)
    engine.crash()
    assert engine.machine.parts[Ending].unsaved == 0


def test_a_run_ends_once_its_loss_has_not_fallen_for_long_enough() -> None:
    engine = run(tokens=240, times=20, stop_early=PatienceSettings(patience=2))
    for _ in range(3):  # each of the engine's evaluations finds the same loss; the first is the lowest
        assert not engine.state.progress.stopping
        version(engine)
    stopping = [d.note for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, notes.Stopping)]
    assert [note.reason for note in stopping] == [
        "the held-out loss has not fallen in 2 evaluations; the lowest was 2",
    ]
    assert engine.state.progress.stopping == stopping[0].reason


def test_without_patience_a_run_takes_its_tokens() -> None:
    engine = run(tokens=240, times=20)
    for _ in range(6):
        version(engine)
    assert not engine.state.progress.stopping
